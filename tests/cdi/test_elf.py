"""SONAMEs read from what the real linker writes, and from what is no ELF file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dra_driver.cdi.discovery.elf import soname
from tests.driver_root import shared_object


@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvidia-ml.so.1", "libEGL_nvidia.so.0"])
def test_soname_of_a_linked_library(name: str) -> None:
    assert soname(shared_object(name)) == name


def test_library_without_soname() -> None:
    assert soname(shared_object("")) == ""


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF" + bytes(60), b"\x7fELF\x02\x01" + b"\xff" * 58],
    ids=["empty", "magic only", "script", "zeros", "absurd offsets"],
)
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert soname(tmp_path / "file") in (None, "")


def test_truncated_library(tmp_path: Path) -> None:
    whole = shared_object("libcuda.so.1").read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "file").write_bytes(whole[:length])
        assert soname(tmp_path / "file") in (None, "", "libcuda.so.1")


def test_missing_file(tmp_path: Path) -> None:
    assert soname(tmp_path / "missing") is None


@pytest.mark.parametrize("order", ["<", ">"], ids=["little endian", "big endian"])
@pytest.mark.parametrize("wide", [True, False], ids=["64 bit", "32 bit"])
def test_other_classes_and_byte_orders(tmp_path: Path, order: str, wide: bool) -> None:
    """A file of one loaded segment: header, two program headers, dynamic section, string table."""
    names = b"\0libcuda.so.1\0"
    header, segment, entry = (64, 56, 16) if wide else (52, 32, 8)
    dynamic = header + 2 * segment
    strings = dynamic + 3 * entry
    size = strings + len(names)
    word = "Q" if wide else "I"
    address = 0x1000

    def program_header(kind: int, offset: int, length: int) -> bytes:
        if wide:
            return struct.pack(order + "IIQQQQQQ", kind, 4, offset, address + offset, 0, length, length, 8)
        return struct.pack(order + "IIIIIIII", kind, offset, address + offset, 0, length, length, 4, 4)

    file = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    file += struct.pack(order + f"HHI{word}{word}{word}IHHHHHH", 3, 62, 1, 0, header, 0, 0, header, segment, 2, 0, 0, 0)
    file += program_header(1, 0, size) + program_header(2, dynamic, 3 * entry)
    for tag, value in ((5, address + strings), (14, 1), (0, 0)):
        file += struct.pack(order + word * 2, tag, value)
    (tmp_path / "file").write_bytes(file + names)
    assert soname(tmp_path / "file") == "libcuda.so.1"
