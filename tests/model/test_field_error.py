from __future__ import annotations

from typing import Any

import pytest

from dra_driver.model import field_error
from dra_driver.model.field_error import FieldError, Named


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x", '"x"'),
        ('a"b\\\n\x7f', '"a\\"b\\\\\\n\\x7f"'),
        ("é<\u200b", '"é<\\u200b"'),
        (Named("<é>"), '"\\u003cé\\u003e"'),
        (3, "3"),
        (True, "true"),
        (None, "null"),
        ([], "[]"),
        ({"b": ["&"], "a": None}, '{"b":["\\u0026"],"a":null}'),
    ],
)
def test_values_look_as_go_prints_them(value: Any, shown: str) -> None:
    assert str(FieldError("spec.x", "Invalid value", value, "why")) == f"spec.x: Invalid value: {shown}: why"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (field_error.required("a"), "a: Required value"),
        (field_error.required("a", "why"), "a: Required value: why"),
        (field_error.forbidden("a", "why"), "a: Forbidden: why"),
        (field_error.duplicate("a[1]", "x"), 'a[1]: Duplicate value: "x"'),
        (field_error.not_found("a", Named("x")), 'a: Not found: "x"'),
        (field_error.too_long("a", 64), "a: Too long: may not be more than 64 bytes"),
        (field_error.too_many("a", 5, 4), "a: Too many: 5: must have at most 4 items"),
        (field_error.not_supported("a", "x", ["B", "A"]), 'a: Unsupported value: "x": supported values: "A", "B"'),
    ],
)
def test_types(error: FieldError, text: str) -> None:
    assert str(error) == text
    assert f"{error.path}: {error.body}" == text
