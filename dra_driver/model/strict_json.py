"""JSON objects that remember which of their fields were given more than once.

A JSON parser keeps the last of two fields with one name, so the author of ``{"interval": "Short", "interval": "Long"}``
is never told. Opaque parameters are stored by the API server as they were written; whoever parses a claim passes
``json.loads(text, object_pairs_hook=json_object)``, and the strict readers of configuration find the repetition here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any


class RepeatedFields(dict[str, Any]):
    """A JSON object some of whose fields were given several times; holds the last value of each."""

    repeated: tuple[str, ...] = ()


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For ``object_pairs_hook``: a plain dict, or a RepeatedFields when a name occurs twice."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    marked = RepeatedFields(plain)
    marked.repeated = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return marked


def repeated_fields(value: object, path: str = "") -> Iterator[str]:
    """Paths of all fields below ``value`` that were given more than once, such as ``sharing.strategy``."""
    if isinstance(value, RepeatedFields):
        for name in value.repeated:
            yield f"{path}.{name}" if path else name
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from repeated_fields(member, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            yield from repeated_fields(member, f"{path}[{index}]")
