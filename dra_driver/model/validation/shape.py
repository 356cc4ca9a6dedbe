"""JSON types of an object: what Go's decoder refuses before any rule is asked (the API server answers 400).

Null is allowed everywhere and means absent; unknown members are ignored; nothing is required here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

from dra_driver.errors import InputError
from dra_driver.model.json_shape import ATTRIBUTE_MEMBERS, KINDS, members_of, shape_of
from dra_driver.model.quantity import MAX_INT64, Quantity
from dra_driver.model.resource import DeviceAttribute


class _Time:
    """Marks a member that holds an RFC 3339 time."""


class _MapOf:
    """Marks an object with free keys."""

    def __init__(self, value: Any) -> None:
        self.value = value


_REQUIREMENT: Final = {"key": str, "operator": str, "values": [str]}
_NODE_SELECTOR: Final = {
    "nodeSelectorTerms": [{"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}],
}
_BY_NAME: Final[dict[str, Any]] = {
    "nodeSelector": _NODE_SELECTOR,
    "nodeAllocatableResources": _MapOf(
        {
            "mapping": {"capacityKey": str, "capacityMultiplier": Quantity, "deviceMultiplier": Quantity},
            "overhead": {"perPod": Quantity, "perContainer": Quantity},
        }
    ),
    "creationTimestamp": _Time,
    "deletionTimestamp": _Time,
    "timeAdded": _Time,
    "allocationTimestamp": _Time,
}
"""Members that the typed model keeps as raw JSON or as text, wherever they occur."""

_SCALARS: Final = {"int": int, "bool": bool, "string": str, "version": str}
_ATTRIBUTE: Final = {
    member: [_SCALARS[member[:-1]]] if member.endswith("s") else _SCALARS[member] for member in ATTRIBUTE_MEMBERS
}
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")
_WORDS: Final = {str: "text", bool: "true or false", int: "a whole number of 64 bits"}


def check_shape(kind: str, raw: Any, *, source: str | None = None) -> None:
    """Check the types of an object of one of the API's kinds.

    Raises:
        InputError: with the path of the first wrong one.
    """
    if not isinstance(raw, Mapping):
        raise InputError(f"must be an object, not {type(raw).__name__}", source=source)
    _check(_schema(KINDS[kind]), raw, "", source)


@cache
def _schema(hint: Any) -> Any:
    if hint is DeviceAttribute:
        return _ATTRIBUTE
    shape, item = shape_of(hint)
    if shape == "list":
        return [_schema(item)]
    if shape == "map":
        return _MapOf(_schema(item))
    if shape == "object":
        return {name: _BY_NAME.get(name) or _schema(member) for name, member, _ in members_of(item).values()}
    return item if item is not DeviceAttribute else _ATTRIBUTE


def _check(schema: Any, value: Any, path: str, source: str | None) -> None:
    if value is None or schema is Any:
        return
    if isinstance(schema, _MapOf | dict):
        if not isinstance(value, Mapping):
            raise _wrong("an object", value, path, source)
        for key, member in value.items():
            if isinstance(schema, _MapOf):
                _check(schema.value, member, f"{path}[{key}]", source)
            elif key in schema:
                _check(schema[key], member, f"{path}.{key}" if path else key, source)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise _wrong("a list", value, path, source)
        for index, member in enumerate(value):
            _check(schema[0], member, f"{path}[{index}]", source)
    elif schema is Quantity:
        Quantity.from_json(value, path=path, source=source)
    elif schema is _Time:
        if not isinstance(value, str) or not _is_time(value):
            raise _wrong("a time like 2026-01-31T12:00:00Z", value, path, source)
    elif type(value) is not schema or (schema is int and not -MAX_INT64 - 1 <= value <= MAX_INT64):
        raise _wrong(_WORDS[schema], value, path, source)


def _is_time(value: str) -> bool:
    if not _RFC3339.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value[:19])
    except ValueError:
        return False
    return True


def _wrong(expected: str, value: Any, path: str, source: str | None) -> InputError:
    return InputError(f"must be {expected}, not {str(value)[:40]!r}", source=source, path=path)
