"""Compiles the stand-in ``libnvidia-ml.so.1`` with the C compiler, once per content.

A binding that looks up a symbol must find it: go-nvml aborts on a missing one. So every name that pynvml looks up and
every name that go-nvml calls (``symbols.txt``) gets a weak stub that answers NOT_SUPPORTED, which a real definition
replaces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache as once
from pathlib import Path

import pynvml

from tests.cluster import cache

LIBRARY_NAME = "libnvidia-ml.so.1"
HERE = Path(__file__).parent
NATIVE = HERE / "native"
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-fvisibility=hidden",
    "-shared",
    f"-Wl,-soname,{LIBRARY_NAME}",
    "-Wl,-z,defs",
)


def compiler() -> str | None:
    """The C compiler, ``$CC`` or ``cc``; None when there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


@once
def library() -> Path:
    """The compiled library, in the cache of test partners.

    Raises:
        RuntimeError: there is no C compiler, or it refuses the source; carries its output.
    """
    sources = sorted(NATIVE.glob("*.[ch]"))
    stubs = stub_source(symbol_names())
    key = cache.content_key(" ".join(FLAGS), stubs, *sources)
    return cache.built("nvml-standin", key, lambda directory: _compile(directory, stubs)) / LIBRARY_NAME


def symbol_names() -> list[str]:
    """Every function that a binding may look up: those of the installed pynvml and those of go-nvml."""
    binding = Path(pynvml.__file__).read_text(encoding="utf-8")
    looked_up = re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', binding)
    return sorted({*looked_up, *(HERE / "symbols.txt").read_text(encoding="utf-8").split()})


def stub_source(names: list[str]) -> str:
    """C source of weak functions that answer NVML_ERROR_NOT_SUPPORTED (3)."""
    attributes = '__attribute__((visibility("default"), weak))'
    return "".join(f"{attributes} int {name}(void) {{ return 3; }}\n" for name in names)


def _compile(directory: Path, stubs: str) -> None:
    program = compiler()
    if program is None:
        raise RuntimeError("the NVML stand-in needs a C compiler: install gcc or set CC")
    stub_file = directory / "stubs.c"
    stub_file.write_text(stubs, encoding="utf-8")
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    command = [program, *FLAGS, "-o", str(directory / LIBRARY_NAME), *sources, str(stub_file), "-lpthread"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"compiling the NVML stand-in failed:\n{finished.stderr}")
