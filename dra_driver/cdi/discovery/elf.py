"""The SONAME of a shared object: the name that programs linked against it ask the loader for.

A reader for one dynamic entry is smaller than a dependency: program headers lead to the dynamic section, that to the
string table (System V ABI, chapters 4 and 5; elf(5)).
"""

from __future__ import annotations

import errno
import os
import struct
from typing import BinaryIO, Final

from dra_driver.cdi.discovery.tree import not_there

_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_DT_NULL: Final = 0
_DT_STRTAB: Final = 5
_DT_SONAME: Final = 14
_LONGEST_NAME: Final = 4096


def soname(path: str | os.PathLike[str]) -> str | None:
    """DT_SONAME of the file, empty when it has none; None when the file is no readable ELF file."""
    try:
        with open(path, "rb") as file:
            return _soname(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # an offset that can't be sought: a damaged file
            not_there(error, os.fspath(path))
        return None
    except (struct.error, ValueError, OverflowError):  # the last two: offsets beyond what can be sought
        return None


def _soname(file: BinaryIO) -> str | None:
    identification = file.read(16)
    if identification[:4] != b"\x7fELF" or len(identification) < 16:
        return None
    wide = identification[4] == 2
    order = ">" if identification[5] == 2 else "<"
    # e_phoff, then e_phentsize and e_phnum behind e_shoff, e_flags and e_ehsize
    header = struct.Struct(order + ("16xQQIHHH" if wide else "12xIIIHHH"))
    offset, _, _, _, entry_size, number = header.unpack(file.read(header.size))
    segments = []
    for index in range(number):
        file.seek(offset + index * entry_size)
        raw = file.read(56 if wide else 32)
        if wide:
            kind, _, start, address, _, size = struct.unpack_from(order + "IIQQQQ", raw)
        else:
            kind, start, address, _, size = struct.unpack_from(order + "IIIII", raw)
        segments.append((kind, start, address, size))
    dynamic = next(((start, size) for kind, start, _, size in segments if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return ""
    entry = struct.Struct(order + ("qQ" if wide else "iI"))
    file.seek(dynamic[0])
    content = file.read(dynamic[1])
    tags: dict[int, int] = {}
    for tag, value in entry.iter_unpack(content[: len(content) // entry.size * entry.size]):
        if tag == _DT_NULL:
            break
        tags.setdefault(tag, value)
    if _DT_SONAME not in tags or _DT_STRTAB not in tags:
        return ""
    for kind, start, address, size in segments:
        if kind == _PT_LOAD and address <= tags[_DT_STRTAB] < address + size:
            file.seek(start + tags[_DT_STRTAB] - address + tags[_DT_SONAME])
            return file.read(_LONGEST_NAME).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    return None
