"""Turns whatever stopped a claim into one error that says the whole cause.

The kubelet gets one line of text per claim and copies it into the Pod's events; what is not in that line is not seen by
the person who waits for the Pod. So the line names the claim and every cause beneath the error.
"""

from __future__ import annotations

from dra_driver.errors import DraDriverError, EnvironmentFault, InputError, InternalError
from dra_driver.model.prepared import ClaimRef
from dra_driver.prepare.claim import claim_source


def failure(ref: ClaimRef, error: Exception) -> DraDriverError:
    """An error of the same family whose text names the claim and all causes; ``error`` is its cause.

    An exception outside our tree is a bug, and is told as one.
    """
    text = whole_cause(error)
    subject = claim_source(ref)
    if isinstance(error, InputError | EnvironmentFault) and subject in str(error) and text == str(error):
        return error
    if subject not in text:
        text = f"{subject}: {text}"
    told: DraDriverError
    if isinstance(error, InputError):
        told = InputError(text)
    elif isinstance(error, EnvironmentFault):
        told = EnvironmentFault(text, retryable=error.retryable)
    elif isinstance(error, InternalError):
        told = InternalError(text)
    else:
        told = InternalError(f"{text} (a bug in dra-driver; its log has the trace)")
    told.__cause__ = error
    return told


def whole_cause(error: BaseException) -> str:
    """The error's text followed by that of each cause, without what was said already."""
    text = _words(error)
    cause = error.__cause__
    while cause is not None:
        words = cause.strerror if isinstance(cause, OSError) and cause.strerror else _words(cause)
        if words not in text:
            text += f"; caused by: {words}"
        cause = cause.__cause__
    return text


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, DraDriverError) else f"{type(error).__name__}: {error}"
