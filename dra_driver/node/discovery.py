"""Keeps the daemon's picture of the hardware current: at start, every 30 s, and on demand, without a restart.

Looking at the hardware blocks (NVML may take seconds), so it runs in a thread of its own and never twice at once. A
look that finds the same hardware changes nothing, so nothing is republished.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from dra_driver.devices.allocatable import AllocatableDevices, allocatable_devices
from dra_driver.inventory.hardware import DriverState, Machine

log = logging.getLogger(__name__)

T = TypeVar("T")


class Inventory(Protocol):
    """What finds hardware; ``discover`` blocks and reports hardware states as values, not exceptions."""

    def discover(self) -> Machine: ...

    def close(self) -> None: ...


class Discovery:
    """The current devices, and the loop that renews them.

    Args:
        inventory: the source of machines.
        interval: seconds between looks.
        on_change: called in the event loop with new devices whenever they differ from the last ones.
        observe_seconds: told how long each look took.
    """

    def __init__(
        self,
        inventory: Inventory,
        *,
        interval: float,
        on_change: Callable[[AllocatableDevices], None],
        observe_seconds: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._inventory = inventory
        self._interval = interval
        self._on_change = on_change
        self._observe_seconds = observe_seconds
        self._wanted = asyncio.Event()
        self._first = asyncio.Event()
        self._looking_since: float | None = None
        self._devices: AllocatableDevices | None = None
        self.last_look: float | None = None
        """Monotonic time of the last completed look."""

    @property
    def devices(self) -> AllocatableDevices | None:
        """The devices of the last look, None before the first."""
        return self._devices

    def request(self) -> None:
        """Look as soon as possible, for example because a claim names a device that isn't known."""
        self._wanted.set()

    async def first(self) -> None:
        """Wait until the first look is done."""
        await self._first.wait()

    def unmet(self) -> str | None:
        """Why the picture may be wrong, for ``/readyz``; a node without a driver or GPUs is a right picture."""
        if self._looking_since is not None and time.monotonic() - self._looking_since > max(3 * self._interval, 60):
            return f"looking at the hardware has not ended for {time.monotonic() - self._looking_since:.0f} s"
        if self._devices is None:
            return "the hardware has not been looked at yet"
        return None

    async def run(self) -> None:
        """Look for ever; ends when cancelled."""
        while True:
            self._wanted.clear()
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._interval)

    async def look(self) -> AllocatableDevices:
        """Look once, and tell of changes."""
        started = self._looking_since = time.monotonic()
        try:
            machine = await _in_daemon_thread(self._inventory.discover)
        finally:
            self._looking_since = None
        self.last_look = time.monotonic()
        self._observe_seconds(self.last_look - started)
        if self._devices is None or self._devices.machine != machine:
            before, self._devices = self._devices, allocatable_devices(machine)
            _log_changes(before, self._devices)
            self._on_change(self._devices)
        self._first.set()
        return self._devices


def _log_changes(old_devices: AllocatableDevices | None, devices: AllocatableDevices) -> None:
    machine, before = devices.machine, old_devices.machine if old_devices is not None else None
    if before is None or before.state is not machine.state or before.reason != machine.reason:
        level = logging.INFO if machine.state is DriverState.READY else logging.WARNING
        log.log(
            level,
            "NVIDIA driver: %s",
            f"{machine.reason or machine.state.value}{f' ({machine.hint})' if machine.hint else ''}",
            extra={"fields": {"driverVersion": machine.driver_version, "gpus": len(machine.gpus)}},
        )
    known = set(old_devices.problems) if old_devices is not None else set()
    for problem in devices.problems:
        if problem not in known:
            hint = f" ({problem.hint})" if problem.hint else ""
            log.warning("%s: %s: %s%s", problem.subject, problem.what, problem.cause, hint)
    old = {gpu.uuid: gpu for gpu in before.gpus} if before is not None else {}
    new = {gpu.uuid: gpu for gpu in machine.gpus}
    for gpu in sorted((new[uuid] for uuid in new.keys() - old.keys()), key=lambda gpu: gpu.minor):
        log.info("found gpu-%d: %s", gpu.minor, gpu.name, extra={"fields": {"uuid": gpu.uuid, "pci": gpu.pci_bus_id}})
    for gpu in sorted((old[uuid] for uuid in old.keys() - new.keys()), key=lambda gpu: gpu.minor):
        log.warning("gpu-%d is gone", gpu.minor, extra={"fields": {"uuid": gpu.uuid}})


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    """As ``asyncio.to_thread``, in a thread that the process does not wait for when it ends.

    A driver that hangs may hold a look for minutes; a stop would wait as long, and be killed meanwhile.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def tell(settle: Callable[[], None]) -> None:
        if not result.done():  # cancelled: nobody waits any more
            settle()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # noqa: BLE001  # handed to whoever waits
            settle = partial(result.set_exception, error)
        else:
            settle = partial(result.set_result, found)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, settle)

    threading.Thread(target=run, name="discovery", daemon=True).start()
    return await result
