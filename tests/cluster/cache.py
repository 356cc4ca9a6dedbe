"""Things that are expensive to build and depend only on their inputs: one directory per content key, built once.

The directory is ``$XDG_CACHE_HOME/dra-driver-tests/<name>-<key>`` (default ``~/.cache``). A build happens in a
temporary sibling that is renamed when complete, under a file lock, so that parallel test processes build once and none
of them ever sees half a result.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def root() -> Path:
    """The cache directory of all test partners; created when missing."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "dra-driver-tests"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def content_key(*parts: str | bytes | Path) -> str:
    """16 hex digits over the given texts and the contents of the given files (names count, too)."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            digest.update(part.name.encode() + b"\0" + part.read_bytes())
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def tree_files(directory: Path, patterns: Iterable[str]) -> list[Path]:
    """All files below ``directory`` that match one of the glob ``patterns``, in a stable order."""
    return sorted({path for pattern in patterns for path in directory.glob(pattern) if path.is_file()})


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold the file lock ``name``; other processes that want it wait."""
    with (root() / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def built(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """The directory for ``name`` and ``key``; when it does not exist, ``build(directory)`` fills it first."""
    directory = root() / f"{name}-{key}"
    if directory.is_dir():
        return directory
    with lock(name):
        if directory.is_dir():
            return directory
        partial = root() / f"{name}-{key}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        build(partial)
        partial.rename(directory)
    return directory
