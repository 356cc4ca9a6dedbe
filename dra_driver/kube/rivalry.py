"""Notices that somebody else keeps writing our slices, and slows us down instead of fighting at full speed.

Two publishers for one driver on one node (an old Pod that did not end, a second installation) each restore their own
content whenever the other wrote. One such correction is ordinary; three within five minutes are a fight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOW = 300.0
LIMIT = 3
_FIRST_DELAY = 10.0


@dataclass(frozen=True, slots=True)
class Competitor:
    """Who else writes our slices.

    Attributes:
        field_manager: as the API server recorded it, normally the program's name; empty when unknown.
        slice_name: the slice it wrote last.
        corrections: how often we restored our content within the last five minutes.
    """

    field_manager: str
    slice_name: str
    corrections: int

    def __str__(self) -> str:
        who = f'"{self.field_manager}"' if self.field_manager else "an unknown writer"
        return f"{who} also writes ResourceSlice {self.slice_name} ({self.corrections} corrections in 5 minutes)"


class Rivalry:
    """Counts corrections of foreign writes; times are monotonic seconds given by the caller."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._last: Mapping[str, Any] | None = None

    def corrected(self, now: float, foreign: Mapping[str, Any]) -> None:
        """We are about to restore what ``foreign`` (the slice as the other one left it) replaced."""
        if self._last is not None and foreign["metadata"] == self._last["metadata"]:
            return  # the same write once more: our correction failed and is repeated
        self._times.append(now)
        self._last = foreign

    def competitor(self, now: float) -> Competitor | None:
        """Who fights with us, None as long as it is no fight."""
        count = self._recent(now)
        if count < LIMIT or self._last is None:
            return None
        return Competitor(_last_writer(self._last), str(self._last["metadata"]["name"]), count)

    def delay(self, now: float) -> float:
        """Seconds to wait before the next correction: none at first, then 10, 20, 40 … up to the window."""
        count = self._recent(now)
        return 0.0 if count < LIMIT else min(WINDOW, _FIRST_DELAY * 2.0 ** (count - LIMIT))

    def _recent(self, now: float) -> int:
        while self._times and now - self._times[0] > WINDOW:
            self._times.popleft()
        return len(self._times)


def _last_writer(obj: Mapping[str, Any]) -> str:
    entries = obj["metadata"].get("managedFields") or ()
    latest: Mapping[str, Any] = max(entries, key=lambda entry: str(entry.get("time", "")), default={})
    return str(latest.get("manager", ""))
