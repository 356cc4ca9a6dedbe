"""How the types of ``resource`` look in JSON: which member belongs to which field, and what is inside.

Shared by the codec and the search for unknown fields, so that both agree on what the API has.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from dra_driver.model import resource
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import AttributeKind, DeviceAttribute

KINDS: Final[dict[str, type]] = {
    kind.__name__: kind
    for kind in (
        resource.ResourceSlice,
        resource.ResourceClaim,
        resource.ResourceClaimTemplate,
        resource.DeviceClass,
        resource.DeviceTaintRule,
    )
}
"""Kinds with an ``apiVersion`` and ``kind`` of their own."""

ATTRIBUTE_MEMBERS: Final[tuple[AttributeKind, ...]] = (
    "ints",
    "bools",
    "strings",
    "versions",
    "int",
    "bool",
    "string",
    "version",
)
"""Members of an attribute in the order in which Kubernetes looks for one that is set."""

NOT_KEPT: Final[dict[type, frozenset[str]]] = {
    resource.ObjectMeta: frozenset({"managedFields", "selfLink", "deletionGracePeriodSeconds"}),
}
"""JSON members that exist in the API but have no field here."""

_VALUES: Final = frozenset({str, bool, int, Any, Quantity, DeviceAttribute})


@cache
def members_of(cls: type) -> dict[str, tuple[str, Any, Field[Any]]]:
    """Field name -> JSON name, type and field."""
    hints = get_type_hints(cls)
    members: dict[str, tuple[str, Any, Field[Any]]] = {}
    for field in fields(cls):
        first, *rest = field.name.split("_")
        json_name = field.metadata.get("json") or first + "".join(word.capitalize() for word in rest)
        members[field.name] = (json_name, hints[field.name], field)
    return members


def required(field: Field[Any]) -> bool:
    """True when a value can't be made without this field."""
    return field.default is MISSING and field.default_factory is MISSING


def is_optional(hint: Any) -> bool:
    """True for ``X | None``."""
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def shape_of(hint: Any) -> tuple[Literal["value", "list", "map", "object"], Any]:
    """What a type is in JSON, and the type of its items, or the type itself; ``X | None`` is like ``X``."""
    if is_optional(hint):
        (hint,) = (argument for argument in get_args(hint) if argument is not type(None))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return "list", arguments[0]
    if origin is Mapping:
        return "map", arguments[1]
    return ("value" if hint in _VALUES else "object"), hint
