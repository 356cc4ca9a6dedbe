"""Waiting for calls that may never return.

A GPU whose firmware hangs can hold an NVML call for minutes, and a thread in such a call can't be ended. So each call
that matters runs in a thread of its own; who asked stops waiting after a while, and as long as the old thread is stuck
no second one is sent after it. Threads are daemons: a stuck one does not keep the process from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class NoAnswer(Exception):
    """The call has not returned; it stays within this package."""


class Attempt(Generic[Result]):
    """One call under way.

    Attributes:
        key: what is asked; one attempt per key.
        done: set when the call has returned or raised.
    """

    def __init__(self, key: Hashable, function: Callable[[], Result]) -> None:
        self.key = key
        self.done = threading.Event()
        self._function = function
        self._result: Result | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """The thread's body."""
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the result
            self._error = error
        finally:
            self.done.set()

    def result(self) -> Result:
        """What the finished call returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


def wait_for(attempt: Attempt[object], seconds: float) -> bool:
    """Wait until the attempt is done, at most so long; whether it is."""
    return attempt.done.wait(seconds)


class Patience:
    """Starts calls in threads and waits for them.

    Args:
        wait: how to wait; tests pass another one to be independent of the clock.
    """

    def __init__(self, wait: Callable[[Attempt[object], float], bool] = wait_for) -> None:
        self._wait = wait
        self._stuck: dict[Hashable, Attempt[object]] = {}

    def start(self, key: Hashable, function: Callable[[], Result]) -> Attempt[Result] | None:
        """Call ``function`` in a new thread; None when an earlier call under the same key has not returned yet."""
        if key in self.stuck():
            return None
        attempt = Attempt(key, function)
        threading.Thread(target=attempt.run, name=f"nvml-{key}", daemon=True).start()
        return attempt

    def finish(self, attempt: Attempt[Result] | None, deadline: float) -> Result:
        """The call's result; raises what it raised.

        Args:
            deadline: on the clock of ``time.monotonic()``.

        Raises:
            NoAnswer: it has not returned in time, or (None) an earlier one still has not.
        """
        if attempt is None:
            raise NoAnswer
        if not self._wait(attempt, max(0.0, deadline - time.monotonic())):  # type: ignore[arg-type]
            self._stuck[attempt.key] = attempt  # type: ignore[assignment]
            raise NoAnswer
        return attempt.result()

    def stuck(self) -> frozenset[Hashable]:
        """Keys of calls that were given up and have not returned."""
        self._stuck = {key: attempt for key, attempt in self._stuck.items() if not attempt.done.is_set()}
        return frozenset(self._stuck)
