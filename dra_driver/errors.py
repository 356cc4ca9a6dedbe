"""The one exception tree: what a person wrote, what the machine or cluster did, what we did wrong.

Every module raises one of these three families and maps the exceptions of the libraries it wraps, so that a caller
needs to know nothing about those libraries and a message always says what happened, where, and what to do next.
"""

from __future__ import annotations


class DraDriverError(Exception):
    """Root of all errors raised by this package; ``str()`` is fit for an operator to read."""


class InputError(DraDriverError):
    """Something a person wrote (a file, a flag, an object) is wrong.

    Attributes:
        message: what is wrong and what was expected.
        source: file name, URL or ``kind namespace/name`` of the object; ``None`` when unknown.
        line, column: 1-based position in ``source``.
        path: field path as the API server writes it, e.g. ``spec.devices[0].name``.
        hint: what to do now.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str | None = None,
        line: int | None = None,
        column: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.source = source
        self.line = line
        self.column = column
        self.path = path
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        place = self.source or ""
        if self.line is not None:
            place += f":{self.line}" if self.column is None else f":{self.line}:{self.column}"
        parts = [part for part in (place, self.path, self.message) if part]
        text = ": ".join(parts)
        return f"{text} ({self.hint})" if self.hint else text


class EnvironmentFault(DraDriverError):
    """The machine, the driver or the cluster is not as needed; trying again later may succeed.

    Attributes:
        message: what happened, naming the object, device and node.
        hint: the next step for an operator.
        retryable: False when only an intervention helps.
    """

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = True) -> None:
        self.message = message
        self.hint = hint
        self.retryable = retryable
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InternalError(DraDriverError):
    """A state that our own code should have made impossible: a bug in dra-driver."""
