"""Keeps a device in the slice where it already is, so that a change of one device is a change of one slice.

A caller that cuts its devices into slices of 64 shifts every later slice when an early device goes; all slices would be
written under a new generation, and the scheduler would see an incomplete pool meanwhile. Here the order of all devices,
which is their priority in allocation, stays as the caller wants it, and only the cuts follow what is published already.
A slice may become empty and be filled again. When that cannot work, the caller's own cuts are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Content = dict[str, Any]
"""The ``spec`` of a ResourceSlice without ``pool``."""

MAX_DEVICES = 128
MAX_ADVANCED_DEVICES = 64
"""With taints, counters or list attributes on any device of the slice (1.36; earlier releases allow no fewer)."""
MAX_COUNTER_SETS = 8

_LISTS = ("devices", "sharedCounters")
_LIST_KINDS = frozenset({"ints", "bools", "strings", "versions"})


def places_of(contents: Sequence[Content]) -> dict[str, int]:
    """Where every device and counter set is: index of its slice."""
    return {key: index for index, content in enumerate(contents) for key, _, _ in _entries(content)}


def arrange(wanted: Sequence[Content], places: Mapping[str, int], count: int) -> list[Content]:
    """``wanted`` cut along ``places`` (of ``count`` published slices), or as it is when that is not possible."""
    if count == 0 or not wanted:
        return list(wanted)
    kept = _keep(wanted, places, count)
    if kept is None or any(not _fits(content) for content in kept):
        return list(wanted)
    empty = sum(1 for content in kept if not any(content.get(name) for name in _LISTS))
    # Many empty slices are worse than one rewrite.
    return kept if empty <= max(1, len(kept) // 2) or len(kept) <= len(wanted) else list(wanted)


def _entries(content: Content) -> Iterator[tuple[str, str, Any]]:
    for name in _LISTS:
        for entry in content.get(name) or ():
            yield f"{name}/{entry['name']}", name, entry


def _keep(wanted: Sequence[Content], places: Mapping[str, int], count: int) -> list[Content] | None:
    base = {key: value for key, value in wanted[0].items() if key not in _LISTS}
    if any({key: value for key, value in content.items() if key not in _LISTS} != base for content in wanted):
        return None  # slices that differ in more than their lists are the caller's business
    cut: dict[int, Content] = {}
    reached, total = 0, count
    for content in wanted:
        entries = list(_entries(content))
        known = Counter(places[key] for key, _, _ in entries if key in places)
        # Newcomers join the slice of those they came with; when all are new they get a slice of their own at the end.
        home = known.most_common(1)[0][0] if known else total
        if entries and not known:
            total += 1
        for key, name, entry in entries:
            index = places.get(key, max(home, reached) if known else home)
            if index < reached:
                return None  # the order has changed
            reached = index
            cut.setdefault(index, dict(base)).setdefault(name, []).append(entry)
    return [cut.get(index, dict(base)) for index in range(total)]


def _fits(content: Content) -> bool:
    devices, counters = content.get("devices") or (), content.get("sharedCounters") or ()
    if devices and counters:
        return False
    limit = MAX_ADVANCED_DEVICES if any(map(_is_advanced, devices)) else MAX_DEVICES
    return len(devices) <= limit and len(counters) <= MAX_COUNTER_SETS


def _is_advanced(device: Mapping[str, Any]) -> bool:
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(not _LIST_KINDS.isdisjoint(value) for value in (device.get("attributes") or {}).values())
