"""Waiting for calls that may never return."""

from __future__ import annotations

import threading
import time

import pytest

from dra_driver.inventory.nvml.patience import NoAnswer, Patience


def far() -> float:
    return time.monotonic() + 60


def test_result_and_error_reach_who_asked() -> None:
    patience = Patience()
    assert patience.finish(patience.start("a", lambda: 7), far()) == 7

    def fail() -> int:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        patience.finish(patience.start("a", fail), far())
    assert patience.stuck() == frozenset()


def test_a_stuck_call_is_given_up_and_not_repeated_until_it_ends() -> None:
    release = threading.Event()
    patience = Patience(wait=lambda attempt, seconds: attempt.key != "slow" and attempt.done.wait(60))
    slow = patience.start("slow", release.wait)
    assert slow is not None
    with pytest.raises(NoAnswer):
        patience.finish(slow, far())
    assert patience.stuck() == {"slow"}
    again = patience.start("slow", lambda: True)
    assert again is None
    with pytest.raises(NoAnswer):
        patience.finish(again, far())
    assert patience.finish(patience.start("other", lambda: 1), far()) == 1
    release.set()
    assert slow.done.wait(60)
    assert patience.stuck() == frozenset()
    assert patience.start("slow", lambda: True) is not None


def test_waiting_ends_at_the_deadline() -> None:
    release = threading.Event()
    patience = Patience()
    try:
        with pytest.raises(NoAnswer):
            patience.finish(patience.start("slow", release.wait), time.monotonic() - 1)
    finally:
        release.set()
