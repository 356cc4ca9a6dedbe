"""Kubernetes' own quantity and version arithmetic as a partner to ask: a small Go program, JSON lines in and out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster import cache
from tests.cluster.availability import Unavailable

_SOURCE = Path(__file__).parent.parent / "oracle" / "quantity"


def program() -> Path:
    """The compiled program; compiled once per content of its source.

    Raises:
        Unavailable: no Go toolchain, or the build failed.
    """
    sources = cache.tree_files(_SOURCE, ["*.go", "go.mod", "go.sum"])

    def build(directory: Path) -> None:
        if shutil.which("go") is None:
            raise Unavailable("no Go toolchain on PATH to compile tests/oracle/quantity")
        done = subprocess.run(
            ["go", "build", "-mod=readonly", "-o", str(directory / "quantity"), "."],
            cwd=_SOURCE,
            env=os.environ | {"GOFLAGS": "-buildvcs=false"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise Unavailable(f"compiling tests/oracle/quantity failed:\n{done.stdout[-3000:]}")

    return cache.built("oracle-quantity", cache.content_key(*sources), build) / "quantity"


class Oracle:
    """One running program; `close` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, kind: str, a: str, b: str | None = None) -> dict[str, Any]:
        question = {"kind": kind, "a": a} if b is None else {"kind": kind, "a": a, "b": b}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0
