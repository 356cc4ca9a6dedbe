"""Builds minikubelet when needed and speaks with it from asyncio.

The program is compiled once per content of this directory (Kubernetes' modules included, by `go.sum`) into the cache of
the test partners; with Go's own cache warm that takes seconds, cold some minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster import cache
from tests.cluster.availability import Unavailable

_HERE = Path(__file__).parent
_START_SECONDS = 60.0
_END_SECONDS = 10.0
_LINE_BYTES = 64 * 1024 * 1024

Json = Mapping[str, Any]


class OperationFailed(Exception):
    """An operation failed; ``str()`` is the text that the kubelet shows its users."""


def compiled() -> Path:
    """The program, compiled if the cache does not have it.

    Raises:
        Unavailable: there is no Go toolchain, or the build failed.
    """
    sources = cache.tree_files(_HERE, ["*.go", "go.mod", "go.sum"])

    def build(directory: Path) -> None:
        if shutil.which("go") is None:
            raise Unavailable("no Go toolchain on PATH to compile minikubelet")
        done = subprocess.run(
            ["go", "build", "-mod=readonly", "-ldflags", "-s -w", "-o", str(directory / "minikubelet"), "."],
            cwd=_HERE,
            env=os.environ | {"GOFLAGS": "-buildvcs=false"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"compiling minikubelet failed:\n{done.stdout[-3000:]}")

    return cache.built("minikubelet", cache.content_key(*sources), build) / "minikubelet"


class MiniKubelet:
    """One running minikubelet; an async context manager. Starting another one with the same root is a restart.

    Args:
        root: the kubelet's directory; drivers register in ``root / "plugins_registry"``.
        objects: what the API server in memory begins with.
        active: Pods that run already when the kubelet starts.
        kubeconfig: use a real API server instead.
    """

    def __init__(
        self,
        root: Path,
        *,
        node: str = "node-1",
        objects: Sequence[Json] = (),
        active: Sequence[Json] = (),
        kubeconfig: Path | None = None,
        feature_gates: str = "",
    ) -> None:
        self.root = root
        self.registry = root / "plugins_registry"
        self.plugins = root / "plugins"
        self.log = root / "minikubelet.log"
        self._node = node
        self._objects = objects
        self._active = active
        self._kubeconfig = kubeconfig
        self._feature_gates = feature_gates
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MiniKubelet:
        self.root.mkdir(parents=True, exist_ok=True)
        arguments = ["-root", str(self.root), "-node", self._node, "-v", "5"]
        for flag, values in (("-objects", self._objects), ("-active", self._active)):
            if values:
                file = self.root / f"{flag[1:]}.json"
                file.write_text(json.dumps(list(values)))
                arguments += [flag, str(file)]
        if self._kubeconfig is not None:
            arguments += ["-kubeconfig", str(self._kubeconfig)]
        if self._feature_gates:
            arguments += ["-feature-gates", self._feature_gates]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                await asyncio.to_thread(compiled),
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(_START_SECONDS):
            first = await self._process.stdout.readline()
        if not first:
            raise RuntimeError(f"minikubelet ended at once:\n{self.log.read_text()[-3000:]}")
        self._reader = asyncio.create_task(self._read(self._process.stdout))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, reader = self._process, self._reader
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if reader is not None:
            await reader

    async def kill(self) -> None:
        """Ends it as a crash would."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def apply(self, kubernetes_object: Json) -> None:
        """Creates or replaces an API object, a claim's status included."""
        await self._do("apply", object=kubernetes_object)

    async def delete(self, kubernetes_object: Json) -> None:
        """Deletes an API object."""
        await self._do("delete", object=kubernetes_object)

    async def slices(self) -> list[Json]:
        """All ResourceSlices of the API server."""
        return list(await self._do("slices") or [])

    async def prepare(self, pod: Json) -> None:
        """What happens before a Pod's sandbox is created.

        Raises:
            OperationFailed: with the text of the Event.
        """
        await self._do("prepare", pod=pod)

    async def unprepare(self, pod: Json) -> None:
        """What happens after a Pod's containers ended.

        Raises:
            OperationFailed: with the text of the log record.
        """
        await self._do("unprepare", pod=pod)

    async def cdi(self, pod: Json) -> dict[str, list[str]]:
        """Container name to the CDI devices that the runtime would get."""
        return dict(await self._do("cdi", pod=pod))

    async def claims(self, pod: Json) -> dict[str, Any]:
        """Container name to the claims that PodResources would report."""
        return dict(await self._do("claims", pod=pod))

    async def active(self, pods: Sequence[Json]) -> None:
        """Replaces the list of active Pods; the others' claims are unprepared within a minute."""
        await self._do("active", pods=list(pods))

    async def health(self, pod: Json) -> dict[str, list[tuple[str, str, str]]]:
        """Container name to (resource, health, message) of its devices in the Pod's status."""
        status = await self._do("health", pod=pod)
        return {
            container["name"]: [
                (resource["resourceID"], resource["health"], resource.get("message", ""))
                for claim in container.get("allocatedResourcesStatus", [])
                for resource in claim["resources"]
            ]
            for container in status["containerStatuses"]
        }

    async def registrations(self) -> list[Json]:
        """What happened to plugins since the last question, in order: validate, register, deregister."""
        return list(await self._do("registrations"))

    async def _do(self, op: str, **arguments: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._ids)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._process.stdin.write(json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n")
        await self._process.stdin.drain()
        answer = await future
        if "error" in answer:
            raise OperationFailed(answer["error"])
        return answer.get("result")

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeError(f"minikubelet ended:\n{self.log.read_text()[-3000:]}"))
