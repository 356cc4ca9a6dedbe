"""JSON of ``resource.k8s.io`` to the values of ``resource`` and back.

Readers and writers are made once per class from its field types, so a new field needs no code here. Reading takes any
served version (see ``versions``) and ignores unknown fields, because a newer API server may send some; ``strict``
reports them instead, which is right for files that people write. Zero values stand for absent ones, as in Go, and the
API server's defaults (``ExactCount``, one device, ``Equal``) are filled in. Writing gives the v1 form without empty
members.

Wrong types and missing names or objects raise InputError with the field path. The API server's further rules are not
applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache
from typing import Any, Final, TypeVar, cast

from dra_driver.errors import InputError
from dra_driver.model.json_shape import ATTRIBUTE_MEMBERS, KINDS, is_optional, members_of, required, shape_of
from dra_driver.model.quantity import MAX_INT64, Quantity
from dra_driver.model.resource import DeviceAttribute
from dra_driver.model.unknown_fields import unknown_fields
from dra_driver.model.versions import SAME_AS_V1, V1, V1BETA1, to_v1

T = TypeVar("T")
_Reader = Callable[[Any], Any]
_Writer = Callable[[Any], Any]

_ATTRIBUTE_TYPES: Final[dict[str, type]] = {"int": int, "bool": bool, "string": str, "version": str}


class _Wrong(Exception):
    """A value of the wrong shape; collects its path from the inside outwards."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.path: list[str | int] = []
        super().__init__(message)


def decode(cls: type[T], raw: Mapping[str, Any], *, source: str | None = None, strict: bool = False) -> T:
    """Read one object or part of one.

    Args:
        raw: decoded JSON. A whole object may carry apiVersion and kind, which then have to fit ``cls``.
        source: file name or the like, for messages.
        strict: refuse fields that the API does not have.

    Raises:
        InputError: with the field path of the first thing that is wrong.
    """
    if cls.__name__ in KINDS and isinstance(raw, Mapping):
        raw = _checked_type(cls, raw, source)
    hint: Any = cls
    try:
        value = _reader(hint)(raw)
    except _Wrong as wrong:
        raise InputError(wrong.message, source=source, path=_path(wrong.path)) from None
    if strict:
        unknown = unknown_fields(cls, raw)
        if unknown:
            path, hint = unknown[0]
            others = f"; also unknown: {', '.join(path for path, _ in unknown[1:])}" if len(unknown) > 1 else ""
            raise InputError(f"the API has no such field{others}", source=source, path=path, hint=hint)
    return cast("T", value)


def decode_any(raw: Mapping[str, Any], *, source: str | None = None, strict: bool = False) -> Any:
    """Read an object by its own apiVersion and kind.

    Raises:
        InputError: it is none of `KINDS`, or as `decode`.
    """
    kind = raw.get("kind")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise InputError(
            f"kind {kind!r} is none of {', '.join(KINDS)}", source=source, path="kind", hint="see resource.k8s.io/v1"
        )
    return decode(cls, raw, source=source, strict=strict)


def encode(value: object) -> dict[str, Any]:
    """The JSON form of an object or part of one; whole objects get apiVersion and kind."""
    hint: Any = type(value)
    write = _writer(hint)
    if write is None:
        raise TypeError(f"{type(value).__name__} is not a value of the API")
    kind = type(value).__name__
    written: dict[str, Any] = write(value)
    return {"apiVersion": V1, "kind": kind, **written} if kind in KINDS else written


def _checked_type(cls: type, raw: Mapping[str, Any], source: str | None) -> Mapping[str, Any]:
    kind = raw.get("kind", cls.__name__)
    if kind != cls.__name__:
        raise InputError(f"expected {cls.__name__}, got {kind!r}", source=source, path="kind")
    version = raw.get("apiVersion", V1)
    if version == V1:
        return raw
    if not isinstance(version, str) or (version not in SAME_AS_V1 and version != V1BETA1):
        raise InputError(f"{version!r} is not a version of {cls.__name__}", source=source, path="apiVersion", hint=V1)
    return to_v1(raw)


def _path(parts: list[str | int]) -> str | None:
    text = ""
    for part in reversed(parts):
        text += f"[{part}]" if isinstance(part, int) or part.startswith("\0") else f".{part}"
    return text.replace("\0", "").removeprefix(".") or None


def _expected(what: str, value: object) -> _Wrong:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return _Wrong(f"must be {what}, not {'null' if value is None else names.get(type(value), type(value).__name__)}")


# --- Reading -----------------------------------------------------------------------------------------------------


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise _expected("text", value)
    return value


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _expected("true or false", value)
    return value


def _read_int(value: Any) -> int:
    if type(value) is not int:
        raise _expected("a whole number", value)
    if not -MAX_INT64 - 1 <= value <= MAX_INT64:
        raise _Wrong(f"{value} does not fit into 64 bits")
    return value


def _read_raw(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _expected("an object", value)
    return value


def _read_anything(value: Any) -> Any:
    return value


def _read_quantity(value: Any) -> Quantity:
    try:
        return Quantity.from_json(value)
    except InputError as error:
        raise _Wrong(f"{error.message} ({error.hint})") from None


def _read_attribute(value: Any) -> DeviceAttribute:
    if type(value) is not dict:
        raise _expected("an object", value)
    for member in ATTRIBUTE_MEMBERS:
        found = value.get(member)
        if found is None:
            continue
        try:
            if member.endswith("s"):
                read = _list_reader(_reader(_ATTRIBUTE_TYPES[member[:-1]]))
            else:
                read = _reader(_ATTRIBUTE_TYPES[member])
            return DeviceAttribute(member, read(found))
        except _Wrong as wrong:
            wrong.path.append(member)
            raise
    return DeviceAttribute("unknown", "")


def _list_reader(read_item: _Reader) -> _Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _expected("a list", value)
        items = []
        try:
            for item in value:
                items.append(read_item(item))  # the length is the index in case of an error
        except _Wrong as wrong:
            wrong.path.append(len(items))
            raise
        return tuple(items)

    return read


def _map_reader(read_value: _Reader) -> _Reader:
    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _expected("an object", value)
        read_values = {}
        key = ""
        try:
            for key, item in value.items():
                read_values[key] = read_value(item)
        except _Wrong as wrong:
            wrong.path.append(f"\0{key}")
            raise
        return read_values

    return read


def _object_reader(cls: type) -> _Reader:
    steps: dict[str, tuple[str, _Reader, bool]] = {}
    needed: dict[str, Any] = {}
    json_of: dict[str, str] = {}
    for name, (json_name, hint, field) in members_of(cls).items():
        # A default other than zero is the API server's default, which it puts in place of zero.
        zero_is_absent = field.default is not MISSING and isinstance(field.default, str | int) and bool(field.default)
        steps[json_name] = (name, _reader(hint), zero_is_absent)
        json_of[name] = json_name
        if required(field):
            needed[name] = _zero(hint)
    counts = "allocation_mode" in json_of

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _expected("an object", value)
        members: dict[str, Any] = {}
        key = ""
        try:
            for key, item in value.items():
                step = steps.get(key)
                if step is None or item is None:
                    continue
                name, read_member, zero_is_absent = step
                if zero_is_absent and not item:
                    continue
                members[name] = read_member(item)
        except _Wrong as wrong:
            wrong.path.append(key)
            raise
        if counts and members.get("allocation_mode") == "All" and "count" not in members:
            members["count"] = 0
        if not needed.keys() <= members.keys():
            for name, zero in needed.items():
                if members.setdefault(name, zero) is None:
                    missing = _Wrong("is missing")
                    missing.path.append(json_of[name])
                    raise missing
        return cls(**members)

    return read


def _zero(hint: Any) -> Any:
    """What an absent required member is: zero for numbers and maps, as in Go; None when there is no sensible zero."""
    return {} if shape_of(hint)[0] == "map" else _ZEROS.get(hint)


_ZEROS: Final[dict[Any, Any]] = {int: 0, Quantity: Quantity.parse("0")}
_VALUES: Final[dict[Any, _Reader]] = {
    str: _read_text,
    bool: _read_bool,
    int: _read_int,
    Quantity: _read_quantity,
    DeviceAttribute: _read_attribute,
    Any: _read_anything,
}


@cache
def _reader(hint: Any) -> _Reader:
    shape, item = shape_of(hint)
    if shape == "value":
        return _VALUES[item]
    if shape == "list":
        return _list_reader(_reader(item))
    if shape == "map":
        return _read_raw if item is Any else _map_reader(_reader(item))
    return _object_reader(item)


# --- Writing -----------------------------------------------------------------------------------------------------


def _write_attribute(value: DeviceAttribute) -> dict[str, Any]:
    if value.kind == "unknown":
        return {}
    return {value.kind: list(value.value) if isinstance(value.value, tuple) else value.value}


def _object_writer(cls: type) -> _Writer:
    steps: list[tuple[str, str, _Writer | None, bool]] = []
    for name, (json_name, hint, field) in members_of(cls).items():
        # What may be None says absent with None, so that its zero has a meaning; what is required is always written.
        steps.append((name, json_name, _writer(hint), is_optional(hint) or required(field)))

    def write(value: Any) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for name, json_name, write_member, keep_zero in steps:
            member = getattr(value, name)
            if member is None or not (member or keep_zero):
                continue
            if write_member is not None:
                member = write_member(member)
                if not (member or keep_zero):
                    continue
            written[json_name] = member
        return written

    return write


_VALUE_WRITERS: Final[dict[Any, _Writer]] = {Quantity: str, DeviceAttribute: _write_attribute}


@cache
def _writer(hint: Any) -> _Writer | None:
    """None when a value is its own JSON."""
    shape, item = shape_of(hint)
    if shape == "value":
        return _VALUE_WRITERS.get(item)
    if shape == "object":
        return _object_writer(item)
    write = None if item is Any else _writer(item)
    if shape == "list":
        return list if write is None else lambda value: [write(member) for member in value]
    return dict if write is None else lambda value: {key: write(member) for key, member in value.items()}
