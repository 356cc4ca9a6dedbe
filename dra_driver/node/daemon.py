"""Start, run and stop of the node daemon.

Start: the kubelet is served before the hardware is known, so that claims can be unprepared while the NVIDIA driver is
missing; the first look at the hardware and the first contact with the API server run meanwhile. Stop (SIGTERM):
leave the kubelet's sight, let running calls finish, and leave slices, records and CDI specs for the next instance.
SIGHUP looks at the hardware at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import resource
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dra_driver import __version__
from dra_driver.devices.allocatable import AllocatableDevices
from dra_driver.errors import DraDriverError
from dra_driver.kube import kubeconfig
from dra_driver.kube.client import ApiClient
from dra_driver.kube.events import EventRecorder
from dra_driver.node import logs
from dra_driver.node.configuration import NodeConfiguration, parse_address
from dra_driver.node.discovery import Discovery
from dra_driver.node.gpu_driver import GpuDriver
from dra_driver.node.hardware import hardware
from dra_driver.node.http import HttpServer
from dra_driver.node.metrics import PRESENT, Metrics

if TYPE_CHECKING:
    from dra_driver.kubelet.grpc_health import GrpcHealthServer

log = logging.getLogger(__name__)

_M_ARENA_MAX = -8  # malloc.h
_OPEN_FILES = 65536


class Daemon:
    """All parts of one node's driver.

    Raises:
        InputError: the configuration names something that does not exist (profile, kubeconfig).
        EnvironmentFault: something without which nothing works can't be had (boot id).
    """

    def __init__(self, configuration: NodeConfiguration) -> None:
        self.configuration = configuration
        self.metrics = Metrics()
        self._inventory, self._edits = hardware(configuration)
        self.discovery = Discovery(
            self._inventory,
            interval=configuration.rediscover_seconds,
            on_change=self._devices_changed,
            observe_seconds=self.metrics.discovery_seconds.observe,
        )
        self._client = ApiClient(kubeconfig.load(configuration.kubeconfig or None))
        self._events = EventRecorder(self._client, component="dra-driver", node_name=configuration.node_name)
        self.drivers = (
            GpuDriver(
                configuration,
                client=self._client,
                discovery=self.discovery,
                edits=self._edits,
                metrics=self.metrics,
                events=self._events,
            ),
        )
        self._warned: set[str] = set()
        self._measure()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set.

        Raises:
            DraDriverError: what must be there at the start is not; a part that ended by a bug ends the daemon.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.discovery.request)
        configuration = self.configuration
        log.info(
            "dra-driver %s on node %s, inventory %s", __version__, configuration.node_name, configuration.inventory
        )
        http: HttpServer | None = None
        health: GrpcHealthServer | None = None
        work = [asyncio.create_task(self.discovery.run(), name="discovery")]
        settling = asyncio.create_task(self._settle())
        try:
            if configuration.http_address:
                host, port = parse_address(configuration.http_address)
                http = HttpServer(host, port, registry=self.metrics.registry, ready=self.unmet)
                log.info("metrics and probes on port %d", await http.start())
            health = await self._serve_health()
            work += [asyncio.create_task(self._events.run(), name="events")]
            for driver in self.drivers:
                await driver.start()
                work.append(asyncio.create_task(driver.run(), name=driver.name))
            await self._until(stop, work)
        finally:
            log.info("stopping")
            settling.cancel()
            for driver in self.drivers:
                await driver.stop()
            await self._end(work)
            self._inventory.close()
            if configuration.uninstall:
                await self._uninstall()
            for probed in (http, health):
                if probed is not None:
                    await probed.stop()
            await self._client.close()

    def unmet(self) -> Mapping[str, str]:
        """Conditions of readiness that are not met, with their reasons."""
        unmet = {}
        hardware_reason = self.discovery.unmet()
        if hardware_reason is not None:
            unmet["hardware"] = hardware_reason
        for driver in self.drivers:
            unmet |= driver.unmet()
        return unmet

    async def _serve_health(self) -> GrpcHealthServer | None:
        """gRPC health when it is configured: the same words as ``/healthz`` and ``/readyz``."""
        if not self.configuration.grpc_health_address:
            return None
        from dra_driver.kubelet.grpc_health import GrpcHealthServer

        async def alive() -> str | None:
            return None  # who answers is alive: the answer comes from the event loop

        async def ready() -> str | None:
            return "; ".join(f"{name}: {reason}" for name, reason in self.unmet().items()) or None

        host, port = parse_address(self.configuration.grpc_health_address, path="grpcHealthAddress")
        checks = {"": alive, "liveness": alive, "readiness": ready}
        bracketed = host if host and ":" not in host else f"[{host or '::'}]"
        health = GrpcHealthServer(f"{bracketed}:{port}", checks)
        await health.start()
        log.info("gRPC health on port %d", health.port)
        return health

    async def _settle(self) -> None:
        """What was built at the start stays for good: it is taken out of garbage collection, which shortens pauses."""
        await self.discovery.first()
        gc.collect()
        gc.freeze()

    @staticmethod
    async def _until(stop: asyncio.Event, work: list[asyncio.Task[None]]) -> None:
        stopped = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({stopped, *work}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        ended = done - {stopped}
        for task in ended:
            log.error("%s ended, so the daemon ends too: %s", task.get_name(), task.exception() or "without an error")
        for task in ended:
            task.result()

    @staticmethod
    async def _end(work: list[asyncio.Task[None]]) -> None:
        running = [task for task in work if not task.done()]  # the others are told by `_until`
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("while stopping: %s", result, exc_info=result)

    async def _uninstall(self) -> None:
        for driver in self.drivers:
            try:
                log.info("%s: removed %d ResourceSlices", driver.name, await driver.publisher.uninstall())
            except DraDriverError as error:
                log.error("%s: the ResourceSlices stay: %s", driver.name, error)

    def _devices_changed(self, devices: AllocatableDevices) -> None:
        for driver in self.drivers:
            driver.devices_changed(devices)
        for warning in self._edits.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                log.warning("containers: %s", warning)

    def _measure(self) -> None:
        reads: dict[str, Callable[[], Mapping[tuple[str, ...], float]]] = {
            "dra_driver_prepared_devices": self._prepared_counts,
            "dra_driver_devices": self._device_counts,
            "dra_driver_publish_success_timestamp_seconds": lambda: {
                (driver.name,): driver.publisher.state.last_success or 0.0 for driver in self.drivers
            },
            "dra_driver_registered": lambda: {
                (driver.name,): float(driver.server.registration.registered) for driver in self.drivers
            },
        }
        for name, text, labels in PRESENT:
            self.metrics.present(name, text, labels, reads[name])

    def _prepared_counts(self) -> Mapping[tuple[str, ...], float]:
        return {
            (driver.name,): sum(len(record.devices) for record in driver.service.prepared()) for driver in self.drivers
        }

    def _device_counts(self) -> Mapping[tuple[str, ...], float]:
        devices = self.discovery.devices
        if devices is None:
            return {}
        name = self.drivers[0].name
        return {(name, "published"): len(devices.by_name), (name, "unavailable"): len(devices.unavailable)}


def _keep_memory_small() -> None:
    """Two malloc arenas for all threads: glibc's default of eight per core keeps megabytes of freed memory each."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 2)


def _allow_many_files() -> None:
    """As many open files as the limit can be raised to: common soft limits (1024) are for programs that use select.

    A thousand claims at once are a thousand connections to the API server.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run(configuration: NodeConfiguration) -> int:
    """Run the daemon until a signal ends it; returns the exit status.

    Raises:
        DraDriverError: it can't start.
    """
    logs.set_up(style=configuration.log_format, level=configuration.log_level)
    _keep_memory_small()
    _allow_many_files()

    async def serve() -> None:
        await Daemon(configuration).run(asyncio.Event())

    asyncio.run(serve())
    return 0
