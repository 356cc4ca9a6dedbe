"""Hypothesis strategies for objects of the API: anything that the types allow, valid or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dra_driver.model.json_shape import ATTRIBUTE_MEMBERS, is_optional, members_of, required, shape_of
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import DeviceAttribute

_texts = st.text(max_size=5)
_int64 = st.integers(-(1 << 63), (1 << 63) - 1)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | _texts, lambda inner: st.lists(inner) | st.dictionaries(_texts, inner)
)
_quantities = st.sampled_from(["0", "80Gi", "1500m", "1.234", "12e6", "-1", "1Pi", "0.1n"]).map(Quantity.parse)


def _attributes() -> st.SearchStrategy[DeviceAttribute]:
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "int": _int64,
        "bool": st.booleans(),
        "string": _texts,
        "version": _texts,
    }
    made: list[st.SearchStrategy[DeviceAttribute]] = [st.just(DeviceAttribute("unknown", ""))]
    for kind in ATTRIBUTE_MEMBERS:
        value = scalars[kind.removesuffix("s")]
        made.append(
            st.builds(DeviceAttribute, st.just(kind), st.lists(value).map(tuple) if kind.endswith("s") else value)
        )
    return st.one_of(made)


_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: _texts,
    bool: st.booleans(),
    int: _int64,
    Quantity: _quantities,
    DeviceAttribute: _attributes(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of ``dra_driver.model.resource``; plain members with a default of the API are never zero."""
    shape, item = shape_of(hint)
    if shape == "value":
        made = _VALUES[item]
    elif shape == "list":
        made = st.lists(
            st.dictionaries(_texts, _json) if shape_of(item)[0] == "map" else values_of(item), max_size=2
        ).map(tuple)
    elif shape == "map":
        made = st.dictionaries(_texts, _json if item is Any else values_of(item), max_size=2)
    else:
        made = _objects(item)
    return st.none() | made if is_optional(hint) else made


def _objects(cls: type) -> st.SearchStrategy[Any]:
    made: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name, (_, hint, field) in members_of(cls).items():
        strategy = values_of(hint)
        if name == "allocation_mode":
            strategy = st.just("ExactCount")
        elif isinstance(field.default, str | int) and field.default:
            strategy = strategy.filter(bool)
        (made if required(field) else optional)[name] = strategy
    return st.fixed_dictionaries(made, optional=optional).map(lambda members: cls(**members))
