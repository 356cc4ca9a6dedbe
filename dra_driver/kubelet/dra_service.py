"""DRAPlugin v1 and v1beta1: claims in, devices or the reason why not out.

The kubelet takes a whole answer or nothing of it, shows a gRPC error without naming a claim, and treats an entry that
is missing or superfluous as an error of its own. So a call that got here is always answered, with exactly one entry
for each claim in the request, whatever the preparer does; what went wrong stands in the entry of the claim, with every
cause, since that text is all that the Pod's owner sees. Both versions share one code path: they differ in the package
of the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Literal, Protocol

import grpc

from dra_driver.errors import DraDriverError, InternalError
from dra_driver.kubelet.calls import Answer, Calls
from dra_driver.kubelet.pb import dra_v1_pb2, dra_v1beta1_pb2
from dra_driver.kubelet.wire import Context, rpc_handler, service
from dra_driver.model.prepared import ClaimRef, PreparedDevice

logger = logging.getLogger(__name__)

DraVersion = Literal["v1", "v1beta1"]
# Preferred first: the kubelet takes the first entry that it knows.
DRA_VERSIONS: tuple[DraVersion, ...] = ("v1", "v1beta1")

Prepared = Mapping[str, "Sequence[PreparedDevice] | DraDriverError"]
Unprepared = Mapping[str, "DraDriverError | None"]


class ClaimPreparer(Protocol):
    """Makes claims ready on this node and undoes it. Keys of the results are claim UIDs.

    The kubelet repeats calls (after failures, timeouts, restarts, for several Pods with the same claim) and overlaps
    them, also for the same claim; both methods must be idempotent and do their own locking. A claim's failure is a
    value in the result, so that the others succeed.
    """

    async def prepare(self, claims: Sequence[ClaimRef]) -> Prepared:
        """Devices for each claim, or why it has none; called although the claim may be prepared already."""

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Unprepared:
        """None for each claim of which nothing is left (also one never heard of), or what prevents that."""


@dataclass(frozen=True, slots=True)
class _Wire:
    """The messages of one API version."""

    messages: ModuleType
    has_share_id: bool


_WIRES: Mapping[str, _Wire] = {
    "v1": _Wire(dra_v1_pb2, has_share_id=True),
    "v1beta1": _Wire(dra_v1beta1_pb2, has_share_id=False),
}


class DraService:
    """Serves one driver's claims in the given API versions."""

    def __init__(self, driver: str, preparer: ClaimPreparer, calls: Calls) -> None:
        self._driver = driver
        self._preparer = preparer
        self._calls = calls

    def handlers(self, versions: Iterable[DraVersion]) -> list[grpc.GenericRpcHandler]:
        """One gRPC handler per version."""
        return [
            rpc_handler(
                service(_WIRES[version].messages.DESCRIPTOR, "DRAPlugin"),
                {
                    "NodePrepareResources": partial(self._prepare, _WIRES[version]),
                    "NodeUnprepareResources": partial(self._unprepare, _WIRES[version]),
                },
            )
            for version in versions
        ]

    async def _prepare(self, wire: _Wire, request: Any, context: Context) -> Any:
        claims = _claims(request)

        async def work() -> Answer[Any]:
            results, missing = await self._ask("prepare", self._preparer.prepare, claims)
            response = wire.messages.NodePrepareResourcesResponse()
            failed = 0
            for claim in claims:
                result = results.get(claim.uid, missing)
                entry = response.claims[claim.uid]
                try:
                    if isinstance(result, DraDriverError):
                        raise result
                    _fill(entry, result, wire)
                except DraDriverError as error:
                    entry.error = self._failure("prepare", claim, error)
                    failed += 1
                except Exception as error:  # noqa: BLE001  # whatever the preparer returned costs this claim only
                    entry.Clear()
                    entry.error = self._failure(
                        "prepare", claim, _bug(f"the devices of claim {claim} are malformed", error)
                    )
                    failed += 1
            return Answer(response, failed)

        def late(seconds: float) -> Any:
            response = wire.messages.NodePrepareResourcesResponse()
            for claim in claims:
                response.claims[claim.uid].error = _late("prepared", claim, self._driver, seconds)
            return response

        return await self._calls.serve("NodePrepareResources", len(claims), request, context, work, late)

    async def _unprepare(self, wire: _Wire, request: Any, context: Context) -> Any:
        claims = _claims(request)

        async def work() -> Answer[Any]:
            results, missing = await self._ask("unprepare", self._preparer.unprepare, claims)
            response = wire.messages.NodeUnprepareResourcesResponse()
            failed = 0
            for claim in claims:
                result = results.get(claim.uid, missing)
                entry = response.claims[claim.uid]
                if result is None:
                    entry.SetInParent()
                    continue
                if not isinstance(result, DraDriverError):
                    result = InternalError(f"unprepare of claim {claim} gave {result!r}; {_REPORT}")
                entry.error = self._failure("unprepare", claim, result)
                failed += 1
            return Answer(response, failed)

        def late(seconds: float) -> Any:
            response = wire.messages.NodeUnprepareResourcesResponse()
            for claim in claims:
                response.claims[claim.uid].error = _late("unprepared", claim, self._driver, seconds)
            return response

        return await self._calls.serve("NodeUnprepareResources", len(claims), request, context, work, late)

    async def _ask(
        self, verb: str, ask: Callable[[Sequence[ClaimRef]], Awaitable[Mapping[str, Any]]], claims: Sequence[ClaimRef]
    ) -> tuple[Mapping[str, Any], DraDriverError]:
        """The preparer's results, and what stands for those it left out."""
        nameless = [claim for claim in claims if not (claim.uid and claim.name and claim.namespace)]
        known = [claim for claim in claims if claim not in nameless] if nameless else claims
        missing: DraDriverError = InternalError(f"{verb} gave no result for this claim; {_REPORT}")
        results: Mapping[str, Any] = {}
        try:
            if known:
                results = await ask(known)
                unasked = results.keys() - {claim.uid for claim in known}
                if unasked:
                    logger.error(
                        "%s: %s gave results for claims nobody asked for: %s", self._driver, verb, sorted(unasked)
                    )
        except DraDriverError as error:
            results, missing = {}, error
        except Exception as error:
            logger.exception("%s: %s of claims %s failed", self._driver, verb, ", ".join(map(str, known)))
            results, missing = {}, _bug(f"{verb} failed", error)
        if nameless:
            fault = InternalError("the kubelet sent a claim without UID, name or namespace")
            results = {**results, **dict.fromkeys((claim.uid for claim in nameless), fault)}
        return results, missing

    def _failure(self, verb: str, claim: ClaimRef, error: DraDriverError) -> str:
        # File names that are not UTF-8 come as lone surrogates, which no message of the wire can hold.
        text = whole_cause(error).encode(errors="backslashreplace").decode()
        logger.warning("%s: %s of claim %s (%s) failed: %s", self._driver, verb, claim, claim.uid, text)
        return text


def whole_cause(error: BaseException) -> str:
    """The error's text followed by those of its causes which it does not quote already; never empty."""
    text = str(error) or type(error).__name__
    seen = {id(error)}
    cause = error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        words = str(cause) or type(cause).__name__
        if words not in text and not _quoted(cause, text):
            text += f": {words}"
        cause = cause.__cause__
    return text


_REPORT = "this is a bug in dra-driver, please report it with the log of the driver's Pod"


def _quoted(cause: BaseException, text: str) -> bool:
    """An OSError's own text repeats number and file name; its reason is what messages quote."""
    return isinstance(cause, OSError) and cause.strerror is not None and cause.strerror in text


def _bug(what: str, error: Exception) -> InternalError:
    fault = InternalError(f"{what}: {type(error).__name__}: {error}; {_REPORT}")
    fault.__cause__ = error
    return fault


def _late(done: str, claim: ClaimRef, driver: str, seconds: float) -> str:
    return (
        f"claim {claim} is still being {done} by driver {driver} after {seconds:.0f} s; "
        "the work goes on and the next attempt asks for its result"
    )


def _claims(request: Any) -> list[ClaimRef]:
    return [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]


def _fill(entry: Any, devices: Iterable[PreparedDevice], wire: _Wire) -> None:
    # An answer without devices is an answer too: the entry must exist.
    entry.SetInParent()
    for device in devices:
        if not device.pool or not device.device:
            raise InternalError(f"a prepared device has no pool or no name: {device}; {_REPORT}")
        message = entry.devices.add(
            # The kubelet compares with the container's request names, which never name a subrequest.
            request_names=dict.fromkeys(request.partition("/")[0] for request in device.requests),
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )
        if wire.has_share_id and device.share_id is not None:
            message.share_id = device.share_id
