"""Device health: what a source reports, kept fresh for everyone who listens.

The kubelet believes an entry for its timeout (30 s unless told otherwise) and then calls the device unknown, so a list
must be repeated without any change. But a repetition must not vouch for a monitor that hangs: an entry that says when
it was checked is sent as unknown once that is longer ago than its timeout. A source that fails ends all streams, which
makes the devices unknown at once, and is asked again some seconds later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from dra_driver.errors import DraDriverError, EnvironmentFault

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_SECONDS = 30
# The kubelet's limit for all devices of a driver.
MAX_DEVICES = 16384
_RETRY_SECONDS = 5.0


class HealthUnsupported(DraDriverError):
    """Raised by a source that finds, when asked, that this node's devices can't be watched."""


class Health(Enum):
    """Values of the wire's HealthStatus."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of one device as last found.

    Attributes:
        pool, device: as in the ResourceSlice.
        message: for the Pod's owner; longer than 1024 bytes is cut.
        checked_at: Unix seconds of the check; None: known without checking, never gets old.
        check_timeout: seconds for which a check counts, > 0.
    """

    pool: str
    device: str
    health: Health
    message: str = ""
    checked_at: float | None = None
    check_timeout: int = DEFAULT_TIMEOUT_SECONDS


class HealthSource(Protocol):
    """Knows the health of a driver's devices."""

    def watch(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        """Full lists: at once, and whenever something changed or was checked again.

        An iterator that ends has said its last word, which stays valid.

        Raises:
            HealthUnsupported: there is nothing to watch.
            EnvironmentFault: not now; asked again some seconds later.
        """


class ConstantHealth:
    """A source for devices that nobody watches."""

    def __init__(self, devices: Sequence[DeviceHealth]) -> None:
        self._devices = tuple(devices)

    async def watch(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        yield self._devices


class HealthFeed:
    """One reader of a source, any number of streams.

    Args:
        clock: Unix seconds.
        retry_seconds: pause before a failed source is asked again.
    """

    def __init__(
        self, source: HealthSource, *, clock: Callable[[], float] = time.time, retry_seconds: float = _RETRY_SECONDS
    ) -> None:
        self._source = source
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._latest: tuple[DeviceHealth, ...] | None = None
        self._failure: DraDriverError | None = None
        self._closed = False
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Reads the source until cancelled, closed, or told that there is nothing to watch."""
        while not self._closed:
            try:
                async for devices in self._source.watch():
                    self._report(tuple(devices))
            except HealthUnsupported as error:
                logger.info("device health is not reported: %s", error)
                self._fail(error)
                return
            except EnvironmentFault as error:
                logger.warning("device health is unknown, asking again in %g s: %s", self._retry_seconds, error)
                self._fail(error)
            except Exception as error:
                logger.exception("device health is unknown, asking again in %g s", self._retry_seconds)
                self._fail(EnvironmentFault(f"the health source failed: {type(error).__name__}: {error}"))
            else:
                return
            await asyncio.sleep(self._retry_seconds)

    async def lists(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """What a stream sends: the full list at once, after each change, and thrice per shortest timeout.

        Ends when the feed is closed.

        Raises:
            HealthUnsupported, EnvironmentFault: the source's.
        """
        while not self._closed:
            changed = self._changed
            if self._failure is not None:
                raise self._failure
            pause = None
            if self._latest is not None:
                now = self._clock()
                yield tuple(_as_of(device, now) for device in self._latest)
                pause = min((device.check_timeout for device in self._latest), default=DEFAULT_TIMEOUT_SECONDS) / 3
            try:
                async with asyncio.timeout(pause):
                    await changed.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        """Ends all streams."""
        self._closed = True
        self._wake()

    def _report(self, devices: tuple[DeviceHealth, ...]) -> None:
        if len(devices) > MAX_DEVICES:
            logger.error("%d devices report health, the kubelet takes the first %d", len(devices), MAX_DEVICES)
            devices = devices[:MAX_DEVICES]
        self._latest, self._failure = devices, None
        self._wake()

    def _fail(self, error: DraDriverError) -> None:
        self._latest, self._failure = None, error
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _as_of(device: DeviceHealth, now: float) -> DeviceHealth:
    if device.checked_at is None or now - device.checked_at <= device.check_timeout:
        return device
    age = now - device.checked_at
    return replace(device, health=Health.UNKNOWN, message=f"not checked for {age:.0f} s, last: {_last_word(device)}")


def _last_word(device: DeviceHealth) -> str:
    return f"{device.health.name.capitalize()}, {device.message}" if device.message else device.health.name.capitalize()
