"""Shared objects with a wanted SONAME, from the real linker, each made once per machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cluster import cache


def shared_object(soname: str) -> Path:
    """An empty shared object whose DT_SONAME is ``soname`` (no SONAME at all when it is empty); read-only, copy it.

    Raises:
        RuntimeError: there is no C compiler on PATH, or it failed.
    """
    directory = cache.root() / "shared-objects"
    target = directory / (soname or "without-soname")
    if target.is_file():
        return target
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("no C compiler (cc) on PATH to make shared objects; Debian: apt-get install gcc libc6-dev")
    directory.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=directory, prefix=".partial-")
    os.close(handle)
    command = [compiler, "-shared", "-nostdlib", "-s", "-o", partial]
    command += [f"-Wl,-soname,{soname}"] if soname else []
    done = subprocess.run([*command, "-x", "c", "-"], input=b"int dra_driver_test;", capture_output=True, check=False)
    if done.returncode != 0:
        Path(partial).unlink()
        raise RuntimeError(f"cc could not link a shared object named {soname}: {done.stderr.decode()}")
    Path(partial).chmod(0o644)
    Path(partial).rename(target)
    return target
