"""The watch stream's framing: one JSON object per line, in chunks of any size (Kubernetes API concepts, "watch")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dra_driver.kube.answers import api_object, read_json
from dra_driver.kube.errors import Unavailable, from_status


class LineSplitter:
    """Cuts a byte stream into lines, whatever the chunking; a line may be larger than any buffer of the transport."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their newline; empty lines are left out."""
        if not chunk:
            return []
        if b"\n" not in chunk:
            # Pieces are joined once per line: appending to one buffer would copy a large line over and over.
            self._pieces.append(chunk)
            return []
        first, *rest = chunk.split(b"\n")
        lines = [b"".join([*self._pieces, first]), *rest[:-1]]
        self._pieces = [rest[-1]] if rest[-1] else []
        return [line for line in lines if line.strip()]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change: ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object has a resourceVersion only)."""

    type: str
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


def parse(line: bytes, path: str) -> WatchEvent:
    """One event.

    Raises:
        Gone: the server's ERROR event says that the resourceVersion expired.
        ApiError: another ERROR event.
        Unavailable: the line is not a watch event (a proxy's answer, a cut stream).
    """
    try:
        raw = read_json(line)
        event = WatchEvent(raw["type"], raw["object"])
        if event.type == "ERROR" and isinstance(event.object, dict):
            raise from_status(event.object, verb="watch", path=path)
        _ = event.resource_version
        if event.type != "BOOKMARK":
            api_object(event.object, verb="watch", path=path)
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"not a watch event: {line[:200]!r}", reason="BadStream", verb="watch", path=path) from error
    return event
