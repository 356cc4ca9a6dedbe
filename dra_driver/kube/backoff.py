"""The wait before trying again: exponential, capped, and jittered so that nodes do not return at once."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays of one retry loop: ``first`` seconds, times ``factor`` per failure, never more than ``cap``.

    Each delay is drawn from [half, whole] of the current step, so ``cap`` holds exactly and the mean stays predictable.
    ``uniform`` is the random source (tests pass their own).
    """

    def __init__(
        self,
        first: float = 0.25,
        cap: float = 30.0,
        *,
        factor: float = 2.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.first = first
        self.cap = cap
        self._factor = factor
        self._uniform = uniform
        self.failures = 0

    def next(self) -> float:
        """The delay in seconds after one more failure."""
        # The exponent is bounded: a float overflows after about a thousand doublings.
        step = min(self.cap, self.first * self._factor ** min(self.failures, 64))
        self.failures += 1
        return self._uniform(step / 2, step)

    def reset(self) -> None:
        """A success: start over."""
        self.failures = 0
