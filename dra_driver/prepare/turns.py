"""One claim, one thing at a time; different claims never wait for each other.

The kubelet gives up on a call after 45 s and calls again, and a Pod may be deleted while it is prepared. So:

- A call of the same kind joins the one that runs or waits last, and gets the same answer.
- A call of the other kind runs after it, in the order of arrival.
- An Unprepare ends a Prepare that is still asking the API server, since nothing has been changed yet and Unprepare must
  not depend on the API server.
- Work goes on when its caller goes away: it is not bound to the connection, and what is half-done is never dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")

Kind = Literal["prepare", "unprepare", "collect"]


class Overtaken(Exception):
    """Raised inside work whose claim is being unprepared; never leaves this package."""


class Turn:
    """The right to work on one claim.

    Attributes:
        overtaken: an Unprepare waits behind this Prepare.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.overtaken = False
        self._asking: asyncio.Task[Any] | None = None

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Await an answer from outside that an Unprepare may cut short.

        Raises:
            Overtaken: it was.
        """
        if self.overtaken:
            raise Overtaken
        self._asking = asyncio.current_task()
        try:
            return await question()
        except asyncio.CancelledError:
            if not self.overtaken or self._asking is None:
                raise
            self._asking.uncancel()
            raise Overtaken from None
        finally:
            self._asking = None

    def overtake(self) -> None:
        """Tell a Prepare that it is no longer wanted."""
        self.overtaken = True
        if self._asking is not None:
            self._asking.cancel()


class Turns(Generic[T]):
    """Turns of all claims, by UID. For the event loop's thread only."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Turn, asyncio.Task[T]]] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    def busy(self, uid: str) -> bool:
        """Whether anything runs or waits for the claim."""
        return uid in self._last

    def run(self, uid: str, kind: Kind, work: Callable[[Turn], Coroutine[Any, Any, T]]) -> asyncio.Future[T]:
        """Do ``work`` when it is the claim's turn, or join the same work at the end of the queue.

        The place in the queue is taken by the call itself, before anything is awaited.
        ``work`` reports failures in its result; what it raises is raised to everybody who waits for it. The work is not
        cancelled with its caller.
        """
        before, previous = self._last.get(uid, (None, None))
        if before is not None and previous is not None:
            if before.kind == kind and kind != "collect":
                return asyncio.shield(previous)
            if kind == "unprepare" and before.kind == "prepare":
                before.overtake()
        turn = Turn(kind)
        task = asyncio.get_running_loop().create_task(self._go(turn, previous, work))
        self._last[uid] = turn, task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._done(uid, done))
        return asyncio.shield(task)

    async def idle(self) -> None:
        """Wait until nothing runs any more."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _go(
        self, turn: Turn, previous: asyncio.Task[T] | None, work: Callable[[Turn], Coroutine[Any, Any, T]]
    ) -> T:
        if previous is not None and not previous.done():
            await asyncio.wait((previous,))
        return await work(turn)

    def _done(self, uid: str, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if uid in self._last and self._last[uid][1] is task:
            del self._last[uid]
