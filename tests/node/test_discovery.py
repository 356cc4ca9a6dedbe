"""The loop that looks at the hardware: when it looks, and what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from dra_driver.devices.allocatable import AllocatableDevices
from dra_driver.inventory.hardware import DriverState, Machine, Problem
from dra_driver.inventory.profile import DescribedInventory
from dra_driver.node.discovery import Discovery

MACHINE = DescribedInventory("l4:gpus=2", node_name="node-a").discover()
ONE_LEFT = replace(MACHINE, gpus=MACHINE.gpus[:1], problems=(Problem("gpu-1", "device", "fell off the bus", "reboot"),))
NO_DRIVER = replace(MACHINE, gpus=(), state=DriverState.NO_LIBRARY, reason="no driver found", hint="install it")


class Hardware:
    """An inventory that finds one machine after the other; the last one for ever."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.machines = list(machines)
        self.looks = 0

    def discover(self) -> Machine:
        self.looks += 1
        return self.machines.pop(0) if len(self.machines) > 1 else self.machines[0]

    def close(self) -> None:
        """Nothing is open."""


class Told:
    """A discovery, with what it told."""

    def __init__(self, *machines: Machine, interval: float = 3600.0) -> None:
        self.hardware = Hardware(machines)
        self.changes: list[AllocatableDevices] = []
        self.seconds: list[float] = []
        self.discovery = Discovery(
            self.hardware, interval=interval, on_change=self.changes.append, observe_seconds=self.seconds.append
        )

    def names(self) -> list[list[str]]:
        return [list(devices.by_name) for devices in self.changes]


@contextlib.asynccontextmanager
async def running(told: Told) -> AsyncIterator[None]:
    task = asyncio.create_task(told.discovery.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def looked(told: Told, times: int) -> None:
    while len(told.seconds) < times:
        await asyncio.sleep(0.001)


async def test_the_hardware_is_looked_at_again_and_again() -> None:
    told = Told(NO_DRIVER, NO_DRIVER, MACHINE, interval=0.001)
    async with running(told):
        await looked(told, 5)
    assert told.names() == [[], ["gpu-0", "gpu-1"]]


async def test_a_request_is_not_put_off_to_the_end_of_the_interval() -> None:
    told = Told(MACHINE, ONE_LEFT)
    async with running(told):
        await told.discovery.first()
        told.discovery.request()
        await looked(told, 2)
    assert told.names() == [["gpu-0", "gpu-1"], ["gpu-0"]]


async def test_the_same_hardware_is_no_change() -> None:
    told = Told(MACHINE)
    before = await told.discovery.look()
    assert await told.discovery.look() is before
    assert (len(told.changes), told.hardware.looks) == (1, 2)
    assert all(seconds >= 0 for seconds in told.seconds)


async def test_what_readiness_says() -> None:
    told = Told(NO_DRIVER)
    assert told.discovery.unmet() == "the hardware has not been looked at yet"
    assert told.discovery.devices is None
    await told.discovery.look()
    assert told.discovery.unmet() is None, "a node without a driver is a right picture"


async def test_changes_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dra_driver")
    told = Told(MACHINE, ONE_LEFT, ONE_LEFT, NO_DRIVER, MACHINE)
    lines = []
    for _ in range(5):
        caplog.clear()
        await told.discovery.look()
        lines.append([record.getMessage() for record in caplog.records])
    found = {f"found gpu-{gpu.minor}: {gpu.name}" for gpu in MACHINE.gpus}
    assert (lines[0][0], set(lines[0][1:])) == (f"NVIDIA driver: {MACHINE.reason or 'ready'}", found)
    assert lines[1] == ["gpu-1: device: fell off the bus (reboot)", "gpu-1 is gone"]
    assert lines[2] == []
    assert lines[3] == ["NVIDIA driver: no driver found (install it)", "gpu-0 is gone"]
    assert set(lines[4][1:]) == found


async def test_a_gpu_that_is_not_offered_is_named(caplog: pytest.LogCaptureFixture) -> None:
    whole = DescribedInventory("dgx-h100:gpus=2", node_name="node-a").discover()
    partitioned = replace(whole.gpus[1], mig_enabled=True, problems=(Problem("gpu-1", "serial", "not readable"),))
    told = Told(replace(whole, gpus=(whole.gpus[0], partitioned)))
    with caplog.at_level(logging.WARNING, "dra_driver.node.discovery"):
        await told.discovery.look()
    assert told.names() == [["gpu-0"]]
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "gpu-1: serial: not readable"
    assert said[1].startswith("gpu-1: device: MIG mode is on, so it can't be given away whole (turn MIG off with")
    assert len(said) == 2


def test_a_look_that_hangs_does_not_keep_the_process() -> None:
    hangs, answers = threading.Event(), threading.Event()

    def discover() -> Machine:
        hangs.set()
        answers.wait()
        return MACHINE

    async def stopped_while_looking() -> None:
        told = Told(MACHINE)
        told.hardware.discover = discover  # type: ignore[method-assign]
        async with running(told):
            while not hangs.is_set():
                await asyncio.sleep(0.005)

    loop = threading.Thread(target=lambda: asyncio.run(stopped_while_looking()), daemon=True)
    loop.start()
    loop.join(30)
    ended = not loop.is_alive()
    looks = [thread.daemon for thread in threading.enumerate() if thread.name == "discovery"]
    answers.set()
    assert ended
    assert looks == [True], "the interpreter joins all others at its end"


async def test_a_look_that_fails_by_a_bug_ends_the_loop() -> None:
    told = Told(MACHINE)

    def discover() -> Machine:
        raise ZeroDivisionError

    told.hardware.discover = discover  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await told.discovery.run()
