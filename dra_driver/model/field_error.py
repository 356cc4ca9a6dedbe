"""One thing that is wrong with an object, worded and printed as the API server does it.

``<path>: <type>: <value>: <detail>``, where Go's rules decide how a value looks: plain strings are quoted with ``%q``,
numbers and booleans are bare, everything else is Go's JSON. Go's named string types (an effect, an operator) fall under
"everything else", which shows as soon as a value has characters that the two notations escape differently: `Named`.
Source: k8s.io/apimachinery/pkg/util/validation/field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from dra_driver.model.gotext import quote

ErrorType = Literal[
    "Invalid value",
    "Required value",
    "Unsupported value",
    "Duplicate value",
    "Forbidden",
    "Too long",
    "Too many",
    "Not found",
    "Internal error",
]
_WITHOUT_VALUE: Final = frozenset({"Required value", "Forbidden", "Too long", "Internal error"})
_JSON_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class Named(str):
    """A string that Go holds in a type of its own, and therefore prints as JSON."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One finding; ``str()`` is the API server's text.

    Attributes:
        path: as in ``spec.devices[0].attributes[memory]``.
        value: what was found there; ignored by types that do not show it.
        detail: what is wrong, may be empty.
    """

    path: str
    type: ErrorType
    value: Any
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"

    @property
    def body(self) -> str:
        """The text without the path, as in ``details.causes[].message`` of an API error."""
        text: str = self.type
        if self.type not in _WITHOUT_VALUE:
            plain = isinstance(self.value, str) and not isinstance(self.value, Named)
            text += ": " + (quote(self.value) if plain else go_json(self.value))
        return f"{text}: {self.detail}" if self.detail else text


def go_json(value: Any) -> str:
    """JSON as Go's encoder writes it; the caller has the members in the right order."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_JSON_ESCAPES)


def byte_length(text: str) -> int:
    """Length as the API server counts it. A lone surrogate is three bytes there, too (U+FFFD)."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "Invalid value", value, detail)


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "Required value", "", detail)


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "Duplicate value", value)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, "Forbidden", "", detail)


def not_found(path: str, value: Any) -> FieldError:
    return FieldError(path, "Not found", value)


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "Too long", "", f"may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, "Too many", count, f"must have at most {limit} items")


def not_supported(path: str, value: str, supported: Iterable[str]) -> FieldError:
    """``value`` is one of a fixed set of texts, which Go always holds in a type of its own."""
    texts = ", ".join(quote(text) for text in sorted(supported))
    return FieldError(path, "Unsupported value", Named(value), f"supported values: {texts}")
