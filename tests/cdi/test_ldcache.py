"""The loader's cache: as the real ldconfig writes it, and broken."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from dra_driver.cdi.discovery.ldcache import libraries_64_bit
from tests.driver_root import shared_object

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/bin")
X86_64 = 0x0303
I386 = 0x0003


def cache(*entries: tuple[int, str], old: bool = False) -> bytes:
    """A cache file of the new format, optionally behind one of the old format with two entries."""
    strings = b""
    table = b""
    base = 48 + 24 * len(entries)
    for flags, path in entries:
        key = base + len(strings)
        strings += Path(path).name.encode() + b"\0"
        value = base + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, key, value, 0, 0)
    new = b"glibc-ld.so.cache1.1" + struct.pack("<II20x", len(entries), len(strings)) + table + strings
    if not old:
        return new
    head = b"ld.so-1.7.0\0" + struct.pack("<I", 2) + bytes(24)
    return head + bytes(-len(head) % 8) + new


@pytest.mark.parametrize("old", [False, True], ids=["new format", "behind the old format"])
def test_64_bit_libraries_in_order_and_once(old: bool) -> None:
    data = cache(
        (X86_64, "/opt/b/libcuda.so.1"),
        (I386, "/opt/32/libcuda.so.1"),
        (0x0A03, "/opt/arm/libcuda.so.1"),
        (X86_64, "/opt/b/libcuda.so.1"),
        (0x0300, "/opt/no-elf.so"),
        old=old,
    )
    assert libraries_64_bit(data) == ["/opt/b/libcuda.so.1", "/opt/arm/libcuda.so.1"]


def test_broken_caches() -> None:
    data = cache((X86_64, "/opt/b/libcuda.so.1"), old=True)
    for length in range(len(data)):
        assert libraries_64_bit(data[:length]) == []
    assert libraries_64_bit(b"something else") == []


@pytest.mark.skipif(LDCONFIG is None, reason="no ldconfig on this machine")
def test_cache_of_the_real_ldconfig(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "opt/nvidia").mkdir(parents=True)
    shutil.copy(shared_object("libcuda.so.1"), tmp_path / "opt/nvidia/libcuda.so.580.95.05")
    (tmp_path / "etc/ld.so.conf").write_text("/opt/nvidia\n")
    subprocess.run([str(LDCONFIG), "-r", str(tmp_path)], check=True, capture_output=True)
    assert "/opt/nvidia/libcuda.so.1" in libraries_64_bit((tmp_path / "etc/ld.so.cache").read_bytes())
