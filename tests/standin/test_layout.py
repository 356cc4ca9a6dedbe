"""The Python mirror of the state file agrees with the C structs."""

from __future__ import annotations

import ctypes
import os

import pytest

from tests.standin import compiler, layout, library

pytestmark = pytest.mark.skipif(
    compiler() is None and not os.environ.get("CI"), reason="the NVML stand-in needs a C compiler"
)


class Entry(ctypes.Structure):
    """``struct layout_entry`` of native/check.c."""

    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_uint)]


def c_layout() -> dict[str, int]:
    loaded = ctypes.CDLL(str(library()))
    table = (Entry * 1024).in_dll(loaded, "standin_layout")
    entries: dict[str, int] = {}
    for entry in table:
        if entry.name is None:
            break
        entries[entry.name.decode()] = entry.value
    return entries


def test_sizes_and_offsets_agree() -> None:
    mirrored = {}
    for name in c_layout():
        struct, _, field = name.partition(".")
        mirror = layout.MIRRORED[struct]
        mirrored[name] = getattr(mirror, field).offset if field else ctypes.sizeof(mirror)
    assert mirrored == c_layout()


def test_every_struct_is_compared() -> None:
    assert {name for name in c_layout() if "." not in name} == set(layout.MIRRORED)
