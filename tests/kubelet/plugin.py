"""A driver's inside for tests: answers what it is told to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_driver.errors import DraDriverError
from dra_driver.kubelet.calls import FinishedCall
from dra_driver.kubelet.server import PluginOptions
from dra_driver.model.prepared import ClaimRef, PreparedDevice

DRIVER = "gpu.example.com"
CLAIM = ClaimRef("default", "claim-a", "uid-a")
OTHER = ClaimRef("default", "claim-b", "uid-b")


def device(claim: ClaimRef, name: str = "gpu-0") -> PreparedDevice:
    """What `Preparer` answers unless told otherwise."""
    return PreparedDevice(("gpu",), "node-1", name, (f"example.com/gpu={claim.uid}-{name}",))


@dataclass
class Preparer:
    """Implements ``ClaimPreparer``; every attribute may be changed between calls.

    Attributes:
        answers: by claim UID instead of one device; None leaves the claim out.
        extra: added to every answer.
        unprepare_answers: by claim UID instead of None.
        raises: raised instead of answering.
        gate: calls wait until it is set.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    unprepare_answers: dict[str, Any] = field(default_factory=dict)
    raises: BaseException | None = None
    gate: asyncio.Event | None = None
    prepared: list[tuple[ClaimRef, ...]] = field(default_factory=list)
    unprepared: list[tuple[ClaimRef, ...]] = field(default_factory=list)
    completed: int = 0
    running: int = 0
    most_running: int = 0

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Sequence[PreparedDevice] | DraDriverError]:
        self.prepared.append(tuple(claims))
        await self._work()
        answers = {claim.uid: self.answers.get(claim.uid, (device(claim),)) for claim in claims}
        return {uid: answer for uid, answer in answers.items() if answer is not None} | dict(self.extra)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, DraDriverError | None]:
        self.unprepared.append(tuple(claims))
        await self._work()
        return {claim.uid: self.unprepare_answers.get(claim.uid) for claim in claims} | dict(self.extra)

    async def _work(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.raises is not None:
                raise self.raises
            self.completed += 1
        finally:
            self.running -= 1


@dataclass
class Observer:
    """Remembers calls."""

    started: list[str] = field(default_factory=list)
    finished: list[FinishedCall] = field(default_factory=list)

    def call_started(self, driver: str, method: str) -> None:
        self.started.append(method)

    def call_finished(self, call: FinishedCall) -> None:
        self.finished.append(call)


def options(root: Path, **changes: Any) -> PluginOptions:
    """Options with both directories below ``root`` and a fast look at the sockets."""
    settings: dict[str, Any] = {
        "driver": DRIVER,
        "plugins_directory": root / "plugins",
        "registry_directory": root / "plugins_registry",
        "poll_seconds": 0.02,
    }
    return PluginOptions(**(settings | changes))


def sockets_in(directory: Path) -> list[str]:
    """Names of the visible sockets below a directory."""
    return sorted(path.name for path in directory.rglob("*") if path.is_socket())


async def eventually(condition: Callable[[], bool]) -> None:
    """Waits until it holds; half a minute is for machines that hang, not a measure of anything."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def uids(calls: Iterable[Sequence[ClaimRef]]) -> list[list[str]]:
    """The calls as sorted lists of claim UIDs."""
    return [sorted(claim.uid for claim in claims) for claims in calls]
