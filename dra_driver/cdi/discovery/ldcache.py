"""Libraries that the dynamic loader's cache (/etc/ld.so.cache) lists, for driver roots with unusual library
directories.

Format: glibc's ``sysdeps/generic/dl-cache.h``. The new format ("glibc-ld.so.cache1.1") may follow an old one
("ld.so-1.7.0"); string offsets count from the start of the new one.
"""

from __future__ import annotations

import struct
from typing import Final

_OLD_MAGIC: Final = b"ld.so-1.7.0\0"
_NEW_MAGIC: Final = b"glibc-ld.so.cache1.1"
_HEADER: Final = struct.Struct("<20sII20x")
_ENTRY: Final = struct.Struct("<iIIIQ")
_OLD_ENTRY_SIZE: Final = 12
_ELF: Final = 0x0001
_64_BIT: Final = (0x0300, 0x0A00, 0x0500)
"""Architecture flags of x86-64, AArch64 and 64-bit little-endian POWER."""


def libraries_64_bit(data: bytes) -> list[str]:
    """Paths of the 64-bit libraries in the cache, in its order, each once; empty when ``data`` is not such a cache."""
    start = 0
    if data.startswith(_OLD_MAGIC):
        if len(data) < len(_OLD_MAGIC) + 4:
            return []
        (count,) = struct.unpack_from("<I", data, len(_OLD_MAGIC))
        start = len(_OLD_MAGIC) + 4 + count * _OLD_ENTRY_SIZE
        start += -start % 8
    strings = data[start:]
    if len(strings) < _HEADER.size or not strings.startswith(_NEW_MAGIC):
        return []
    _, count, _ = _HEADER.unpack_from(strings)
    found: dict[str, None] = {}
    for index in range(count):
        position = _HEADER.size + index * _ENTRY.size
        if position + _ENTRY.size > len(strings):
            break
        flags, _, value, _, _ = _ENTRY.unpack_from(strings, position)
        if flags & _ELF and flags & 0xFF00 in _64_BIT and value < len(strings):
            end = strings.find(b"\0", value)
            if end > value:
                found[strings[value:end].decode("utf-8", "surrogateescape")] = None
    return list(found)
