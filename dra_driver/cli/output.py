"""What commands print: YAML or JSON documents, and plain tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object


def add_format_flag(parser: argparse.ArgumentParser, *formats: str) -> None:
    """``-o``; the first format is the default."""
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help=f"output format ({formats[0]})")


def documents(objects: Iterable[Mapping[str, Any]], style: str) -> str:
    """Kubernetes objects as a YAML stream, or as one JSON object (a List when there are several)."""
    items = list(objects)
    if style == "json":
        whole: Any = items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}
        return json.dumps(whole, indent=2)
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return "---\n".join(yaml.dump(item, Dumper=dumper, sort_keys=False, width=120) for item in items).rstrip("\n")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned with two spaces between them, as kubectl prints."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
