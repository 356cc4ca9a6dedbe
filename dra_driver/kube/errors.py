"""What the API server answered, as exceptions of the environment family.

One class per reason that callers decide on; everything else is ``ApiError`` itself. Each carries the HTTP status, the
``reason`` of the ``metav1.Status`` body, the server's own message, and the request that failed, so that a log line can
be acted upon without a trace. Source: k8s.io/apimachinery/pkg/api/errors, metav1.StatusReason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One entry of ``status.details.causes``: which field was refused and why."""

    field: str
    reason: str
    message: str


class ApiError(EnvironmentFault):
    """A request to the API server failed.

    Attributes:
        status: HTTP status, 0 when no answer came.
        reason: ``metav1.StatusReason`` (``NotFound``, ``Conflict`` …) or a word of ours when there was no answer.
        verb, path: the request.
        retry_after: seconds that the server asked to wait, None when it did not say.
        causes: refused fields of an ``Invalid`` answer.
    """

    default_hint: str | None = None
    default_retryable = True

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        verb: str = "",
        path: str = "",
        retry_after: float | None = None,
        causes: tuple[StatusCause, ...] = (),
        hint: str | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.verb = verb
        self.path = path
        self.retry_after = retry_after
        self.causes = causes
        self.server_message = message
        where = f"{verb} {path}: " if verb else ""
        super().__init__(f"{where}{message}", hint=hint or self.default_hint, retryable=self.default_retryable)


class BadRequest(ApiError):
    """400: the request itself is malformed, e.g. an unknown field selector of an older server."""

    default_retryable = False


class Unauthorized(ApiError):
    """401: the credentials were not accepted, even after they were read again."""

    default_hint = "check that the ServiceAccount token or the kubeconfig's user is still valid"


class Forbidden(ApiError):
    """403: RBAC or an admission policy refuses this."""

    default_hint = "grant the verb to the driver's ServiceAccount (deploy/ holds the needed ClusterRole)"
    default_retryable = False


class NotFound(ApiError):
    """404: the object, its namespace or the whole API group version does not exist."""

    default_retryable = False


class Conflict(ApiError):
    """409: somebody else changed the object since it was read, or a precondition does not hold."""


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists: the name is taken."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks a rule; ``causes`` names the fields."""

    default_retryable = False


class TooManyRequests(ApiError):
    """429: priority and fairness or an eviction budget asks to wait, and the caller's time is over."""

    default_hint = "the API server is overloaded; the request is repeated later"


class Unavailable(ApiError):
    """No usable answer: connection refused or lost, time over, TLS failure, 5xx."""

    default_hint = "check that the API server runs and can be reached from this node"


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_answer(status: int, body: bytes, *, verb: str, path: str, retry_after: float | None = None) -> ApiError:
    """The error for an HTTP answer with status >= 400; the body is a ``metav1.Status`` or a proxy's free text."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        text = body.decode("utf-8", "replace").strip().splitlines()
        parsed = {"message": f"HTTP {status}: {text[0][:500]}" if text else f"HTTP {status} without an explanation"}
    return from_status(parsed, status=status, verb=verb, path=path, retry_after=retry_after)


def from_status(
    body: Mapping[str, Any], *, status: int | None = None, verb: str, path: str, retry_after: float | None = None
) -> ApiError:
    """The error for a ``metav1.Status`` object, as an answer's body or as the object of a watch's ERROR event."""
    code = status if status is not None else _as_int(body.get("code"))
    reason = str(body.get("reason") or "")
    raw_details = body.get("details")
    details: Mapping[str, Any] = raw_details if isinstance(raw_details, Mapping) else {}
    raw_causes = details.get("causes")
    causes = tuple(
        StatusCause(str(c.get("field", "")), str(c.get("reason", "")), str(c.get("message", "")))
        for c in (raw_causes if isinstance(raw_causes, list) else ())
        if isinstance(c, Mapping)
    )
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(_as_int(details["retryAfterSeconds"]))
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(code) or (Unavailable if code >= 500 else ApiError)
    message = str(body.get("message") or f"HTTP {code} {reason}".rstrip())
    return kind(message, status=code, reason=reason, verb=verb, path=path, retry_after=retry_after, causes=causes)


def _as_int(value: Any) -> int:
    return value if isinstance(value, int) else 0
