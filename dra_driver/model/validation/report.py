"""Collects errors in the API server's order: those of written rules first, those of declared rules after them.

Also the small vocabulary that all rules share: reading raw JSON as Go does (null and absent are the zero value) and
going through lists and maps with limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dra_driver.model.field_error import FieldError, byte_length, duplicate, too_many
from dra_driver.model.validation.gates import Rules


class Report:
    """What has been found so far.

    Attributes:
        rules: of the Kubernetes release that is asked.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._written: list[FieldError] = []
        self._declared: list[FieldError] = []

    def add(self, *errors: FieldError) -> None:
        """Errors of rules that are written as code in the API server."""
        self._written += errors

    def declare(self, *errors: FieldError) -> None:
        """Errors of rules that are declared in the API's types; before 1.37 code did the same."""
        (self._declared if self.rules.declarative else self._written).extend(errors)

    @property
    def declared_unit(self) -> str:
        """What the texts of name rules that are declared call a byte."""
        return "bytes" if self.rules.declarative else "characters"

    def errors(self) -> list[FieldError]:
        """Everything found; the API server says the same thing only once, too."""
        return list({str(error): error for error in self._written + self._declared}.values())


def text(raw: Mapping[str, Any], key: str) -> str:
    """A string member; absent is empty."""
    return raw.get(key) or ""


def number(raw: Mapping[str, Any], key: str) -> int:
    """An integer member; absent is zero."""
    return raw.get(key) or 0


def items(raw: Mapping[str, Any], key: str) -> list[Any]:
    """A list member; absent is empty."""
    return raw.get(key) or []


def entries(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A map or object member; absent is empty."""
    return raw.get(key) or {}


def by_key(raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A map's entries in a stable order, null values as the zero object."""
    for key in sorted(raw):
        yield key, {} if raw[key] is None else raw[key]


def within(report: Report, found: list[Any], limit: int, path: str, *, declared: bool = False) -> bool:
    """False after an error when a list is too long; its items are then not looked at."""
    if len(found) <= limit:
        return True
    (report.declare if declared else report.add)(too_many(path, len(found), limit))
    return False


def no_duplicates(
    report: Report, keys: Iterable[str], path: str, *, name: str = "", show: Callable[[int], Any] | None = None
) -> None:
    """Report the second and later uses of a key.

    Args:
        name: member that holds the key; up to 1.34 it is part of the path.
        show: item to print instead of the key, for lists whose uniqueness is declared.
    """
    suffix = f".{name}" if name and report.rules.minor < 35 else ""
    seen: set[str] = set()
    for index, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
        elif show is not None and report.rules.declarative:
            report.declare(duplicate(f"{path}[{index}]", show(index)))
        else:
            report.add(duplicate(f"{path}[{index}]{suffix}", key))


def shortened(key: str, limit: int) -> str:
    """A map key as it stands in a path: its middle is left out when it is longer than ``limit`` bytes."""
    if byte_length(key) <= limit:
        return key
    data = key.encode("utf-8", "surrogatepass")
    rest = limit - 3
    return (data[: (rest + 1) // 2] + b"..." + data[len(data) - rest // 2 :]).decode("utf-8", "replace")
