"""Every call of the kubelet, from admission to answer: request ids, timing, shutdown, callers that give up.

The work of a call runs in a task of its own. The kubelet gives up after 45 s and asks again; the work goes on
meanwhile, so that a slow step is done once and the next attempt finds its result. Shortly before the caller's deadline
an answer that says so is given, because a missed deadline tells the Pod's owner nothing.

While draining, running work may finish for a bounded time and new calls are refused with UNAVAILABLE, which the kubelet
retries.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from dra_driver.kubelet.wire import Context

logger = logging.getLogger(__name__)

# Number of the call being served, as text, for log records of all layers below; empty outside of a call.
request_id: ContextVar[str] = ContextVar("request_id", default="")

Outcome = Literal["ok", "claims_failed", "error", "refused"]
ResponseT = TypeVar("ResponseT", bound=Message)

_numbers = itertools.count(1)
_ANSWER_MARGIN_SECONDS = 1.0
_CLEANUP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """What happened to one call.

    Attributes:
        driver: DRA driver name.
        method: ``NodePrepareResources`` or ``NodeUnprepareResources``.
        outcome: ``claims_failed``: answered, at least one claim with an error; ``error``: ended by a bug or by the end
            of the grace period; ``refused``: not begun, since the driver was stopping.
        seconds: from the call's arrival to the end of its work (not of the answer, if that was given earlier).
        claims, failed: number of claims in the call, and of those answered with an error.
        abandoned: the caller did not wait for the result.
    """

    driver: str
    method: str
    outcome: Outcome
    seconds: float
    claims: int
    failed: int
    abandoned: bool = False


class CallObserver(Protocol):
    """Told about each call; ``call_started`` and ``call_finished`` come in pairs, so their difference is in flight."""

    def call_started(self, driver: str, method: str) -> None: ...

    def call_finished(self, call: FinishedCall) -> None: ...


class SilentObserver:
    """For those who measure nothing."""

    def call_started(self, driver: str, method: str) -> None:
        del driver, method

    def call_finished(self, call: FinishedCall) -> None:
        del call


@dataclass(frozen=True, slots=True)
class Answer(Generic[ResponseT]):
    """A response with the number of claims that it answers with an error."""

    response: ResponseT
    failed: int


class Calls:
    """The running calls of one driver."""

    def __init__(self, driver: str, observer: CallObserver) -> None:
        self._driver = driver
        self._observer = observer
        self._running: set[asyncio.Task[Answer[Message]]] = set()
        self._draining = False

    async def serve(
        self,
        method: str,
        claims: int,
        request: Message,
        context: Context,
        work: Callable[[], Awaitable[Answer[ResponseT]]],
        late: Callable[[float], ResponseT],
    ) -> ResponseT:
        """Does the work of one call and returns its response.

        Args:
            claims: how many the request names.
            late: the response to give when the work is not done so many seconds after it began.
        """
        begin = time.perf_counter()
        self._observer.call_started(self._driver, method)
        if self._draining:
            self._finished(method, "refused", begin, claims, 0)
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"driver {self._driver} on this node is stopping; ask again once it is back",
            )
        number = str(next(_numbers))
        request_id.set(number)
        debug = logger.isEnabledFor(logging.DEBUG)
        if debug:
            logger.debug(
                "%s %s request %s: %s", self._driver, method, number, MessageToString(request, as_one_line=True)
            )
        abandoned: list[bool] = []
        task = asyncio.get_running_loop().create_task(self._measured(method, begin, claims, work, abandoned))
        self._running.add(task)  # type: ignore[arg-type]  # a set that only waits and cancels
        task.add_done_callback(self._running.discard)
        remaining = context.time_remaining()
        try:
            done, _ = await asyncio.wait((task,), timeout=_patience(remaining))
        except asyncio.CancelledError:
            abandoned.append(True)
            logger.warning("%s %s %s: the caller gave up; the work goes on", self._driver, method, number)
            raise
        if not done:
            abandoned.append(True)
            seconds = time.perf_counter() - begin
            logger.warning("%s %s %s: not done after %.0f s; the work goes on", self._driver, method, number, seconds)
            return late(seconds)
        if task.cancelled():
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"driver {self._driver} on this node stopped before the call was done; ask again",
            )
        response = task.result().response
        if debug:
            text = MessageToString(response, as_one_line=True)
            logger.debug("%s %s response %s: %s", self._driver, method, number, text)
        return response

    async def drain(self, grace: float) -> None:
        """Refuses new calls from now on; running ones get ``grace`` seconds and are cancelled then."""
        self._draining = True
        if not self._running:
            return
        _, late = await asyncio.wait(tuple(self._running), timeout=grace)
        for task in late:
            task.cancel()
        if late:
            logger.warning("%s: %d calls not done after %g s were cancelled", self._driver, len(late), grace)
            # They get to their own clean-up; one that ignores being cancelled must not keep the process.
            await asyncio.wait(late, timeout=_CLEANUP_SECONDS)

    async def _measured(
        self,
        method: str,
        begin: float,
        claims: int,
        work: Callable[[], Awaitable[Answer[ResponseT]]],
        abandoned: list[bool],
    ) -> Answer[ResponseT]:
        outcome: Outcome = "error"
        failed = claims
        try:
            answer = await work()
            failed = answer.failed
            outcome = "claims_failed" if failed else "ok"
            return answer
        finally:
            self._finished(method, outcome, begin, claims, failed, bool(abandoned))

    def _finished(
        self, method: str, outcome: Outcome, begin: float, claims: int, failed: int, abandoned: bool = False
    ) -> None:
        seconds = time.perf_counter() - begin
        self._observer.call_finished(FinishedCall(self._driver, method, outcome, seconds, claims, failed, abandoned))


def _patience(remaining: float | None) -> float | None:
    """How long to wait for the work when the caller waits ``remaining`` seconds, None without a deadline."""
    if remaining is None:
        return None
    return max(remaining - _ANSWER_MARGIN_SECONDS, remaining / 2)
