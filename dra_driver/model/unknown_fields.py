"""JSON members that the API does not have, as the author of a file wants to hear of them: where, and what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from dra_driver.model.json_shape import ATTRIBUTE_MEMBERS, KINDS, NOT_KEPT, members_of, shape_of
from dra_driver.model.resource import DeviceAttribute
from dra_driver.model.versions import to_v1


def unknown_fields(cls: type, raw: Any) -> list[tuple[str, str | None]]:
    """Paths of unknown members of ``raw`` read as ``cls``, each with a hint when a known name is close."""
    found: list[tuple[str, str | None]] = []
    if isinstance(raw, Mapping):
        _collect(cls, to_v1(raw) if cls.__name__ in KINDS else raw, "", found)
    return found


def _collect(hint: Any, raw: Any, path: str, found: list[tuple[str, str | None]]) -> None:
    shape, item = shape_of(hint)
    if shape == "list" and isinstance(raw, list):
        for index, member in enumerate(raw):
            _collect(item, member, f"{path}[{index}]", found)
    elif shape == "map" and isinstance(raw, Mapping):
        for key, member in raw.items():
            _collect(item, member, f"{path}[{key}]", found)
    elif (shape == "object" or item is DeviceAttribute) and isinstance(raw, Mapping):
        known = _known(item)
        for key, member in raw.items():
            place = f"{path}.{key}" if path else str(key)
            if key in known:
                _collect(known[key], member, place, found)
            else:
                close = difflib.get_close_matches(str(key), known, n=1)
                found.append((place, f"did you mean {close[0]}?" if close else None))


def _known(cls: type) -> dict[str, Any]:
    if cls is DeviceAttribute:
        return dict.fromkeys(ATTRIBUTE_MEMBERS, Any)
    known = {json_name: hint for json_name, hint, _ in members_of(cls).values()}
    known |= dict.fromkeys(NOT_KEPT.get(cls, ()), Any)
    return {"apiVersion": Any, "kind": Any, **known} if cls.__name__ in KINDS else known
