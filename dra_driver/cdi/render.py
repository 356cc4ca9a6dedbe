"""Spec bytes, fast: the edits of a driver and of a GPU are serialised once, and each claim's file is joined from them.
from them.

A claim's spec differs from the next one's by the device names only, while its body (about 60 mounts) is the same
until the driver changes. So each frozen `ContainerEdits` keeps its own JSON and the version it needs, and rendering
is a join of a few pieces. The result equals ``json.dumps(as_json(spec))`` in content; a property test holds that.

JSON, not YAML: every runtime reads ``*.json`` from its CDI directories, and JSON is what Python writes fast. But the
reference library reads it with a YAML parser, which takes neither escaped surrogate pairs nor raw control characters.
So characters beyond U+FFFF are written as they are and all others outside ASCII are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any, Final

from dra_driver.cdi.spec import (
    KNOWN_VERSIONS,
    CdiDevice,
    ContainerEdits,
    edits_as_json,
    edits_version,
    header_version,
)

_NO_EDITS: Final = ContainerEdits()
_TO_ESCAPE: Final = re.compile("[\x7f-\uffff]")


def render(
    kind: str,
    devices: Sequence[CdiDevice],
    common: ContainerEdits = _NO_EDITS,
    annotations: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The file content (JSON, one line and a line feed) of a spec, with the lowest version that allows it.

    Nothing is validated here: edits come from `dra_driver.cdi.edits`, names from `dra_driver.cdi.spec.device_name`.
    """
    annotated = bool(annotations)
    names = []
    pieces = []
    version = 0
    for device in devices:
        body, needed = _rendered(device.edits)
        version = max(version, needed)
        names.append(device.name)
        annotation = b""
        if device.annotations:
            annotated = True
            annotation = b'"annotations":' + _dumped(dict(device.annotations)) + b","
        pieces.append(b'{"name":%b,%b"containerEdits":%b}' % (_quoted(device.name), annotation, body))
    version = max(version, header_version(kind, tuple(names), annotated=annotated))
    tail = b""
    if common:
        body, needed = _rendered(common)
        version = max(version, needed)
        tail = b',"containerEdits":' + body
    head = b'"annotations":' + _dumped(dict(annotations)) + b"," if annotations else b""
    return b'{"cdiVersion":"%b","kind":%b,%b"devices":[%b]%b}\n' % (
        KNOWN_VERSIONS[version].encode(),
        _quoted(kind),
        head,
        b",".join(pieces),
        tail,
    )


def _rendered(edits: ContainerEdits) -> tuple[bytes, int]:
    """JSON of ``edits`` and the index of the version they need; computed once per value."""
    known = edits.rendered
    if known is None:
        known = _dumped(edits_as_json(edits)), edits_version(edits)
        object.__setattr__(edits, "rendered", known)
    return known


def _dumped(value: Any) -> bytes:
    return _escaped(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _quoted(text: str) -> bytes:
    return _escaped(encode_basestring(text))


def _escaped(document: str) -> bytes:
    """``document`` in UTF-8; outside ASCII a JSON document has characters only within its strings."""
    if not document.isascii() or "\x7f" in document:
        document = _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
    return document.encode()
