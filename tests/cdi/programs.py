"""The upstream judges, compiled from their Go modules when first needed: CDI reference library, nvidia-ctk, its hook.

The toolkit takes about a minute when nothing is cached, seconds otherwise. What is built stays in the cache of test
partners.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster import cache
from tests.cluster.availability import Unavailable

_MODULES = Path(__file__).parents[1] / "oracle"
_TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit/cmd"


def toolkit() -> Path:
    """The directory with ``nvidia-ctk`` and ``nvidia-cdi-hook``.

    Raises:
        Unavailable: no Go toolchain or C compiler, or the build failed.
    """
    if shutil.which("cc") is None:
        raise Unavailable("no C compiler (cc) on PATH: nvidia-ctk calls NVML through cgo")
    return _compiled("toolkit", [f"{_TOOLKIT}/nvidia-ctk", f"{_TOOLKIT}/nvidia-cdi-hook"], "./")


def reference() -> Path:
    """The program around the CDI reference library.

    Raises:
        Unavailable: no Go toolchain, or the build failed.
    """
    return _compiled("cdi", ["."], "cdi") / "cdi"


def _compiled(name: str, packages: list[str], output: str) -> Path:
    module = _MODULES / name
    sources = cache.tree_files(module, ("go.mod", "go.sum", "*.go"))

    def build(directory: Path) -> None:
        if shutil.which("go") is None:
            raise Unavailable(f"no Go toolchain on PATH to compile {module.name}")
        # A path that ends in "./" is a directory to the Go command.
        command = ["go", "build", "-mod=readonly", "-ldflags", "-s -w", "-o", f"{directory}/{output}", *packages]
        environment = os.environ | {"GOFLAGS": "-buildvcs=false"}
        done = subprocess.run(command, cwd=module, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"go build in {module.name} failed:\n{done.stderr[-2000:]}")

    return cache.built(f"oracle-{name}", cache.content_key(*packages, *sources), build)


class Reference:
    """The running reference library: one question, one answer."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([reference()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Reference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The answer to one question of ``tests/oracle/cdi/main.go``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op} | fields).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
