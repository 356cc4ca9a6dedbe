"""One DRA driver as the kubelet sees it: from the first socket to the last answered call.

Start: the DRA socket serves before the registration socket exists, so the kubelet never finds an endpoint that does
not answer. Run: both sockets are looked after every second; the registration directory may be missing, be created late
or be recreated by a kubelet that restarts. Stop: the registration socket goes first, then new calls are refused while
running ones finish. Every driver of a process has a PluginServer of its own and they share nothing.

During a rolling update two instances of a driver run on a node. With a pod UID each has sockets of its own, the
kubelet uses the latest one registered, and neither touches the other's files. Without, the second refuses to start and
says who is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.kubelet import sockets
from dra_driver.kubelet.calls import CallObserver, Calls, SilentObserver
from dra_driver.kubelet.dra_service import DRA_VERSIONS, ClaimPreparer, DraService, DraVersion
from dra_driver.kubelet.health import HealthFeed, HealthSource
from dra_driver.kubelet.health_service import HEALTH_VERSIONS, health_handlers
from dra_driver.kubelet.registration import RegistrationService, RegistrationState
from dra_driver.kubelet.unix_server import UnixServer, Upkeep

logger = logging.getLogger(__name__)

PLUGINS_DIRECTORY = Path("/var/lib/kubelet/plugins")
REGISTRY_DIRECTORY = Path("/var/lib/kubelet/plugins_registry")
# Answers already given need this long to leave the process.
_FLUSH_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """Where and how one driver meets the kubelet.

    Attributes:
        driver: DRA driver name, e.g. ``gpu.nvidia.com``.
        plugins_directory: parent of the driver's own directory; the kubelet must see the same paths.
        registry_directory: where the kubelet looks for registration sockets.
        pod_uid: UID of the driver's Pod, so that two instances may run on a node (kubelet 1.33 and later); empty: one.
        single_socket: serve everything on the registration socket.
        versions: DRA APIs to serve; the order is fixed.
        poll_seconds: how often the sockets are looked after.

    Raises:
        InputError: the driver's name can't be part of a path or no version is left.
    """

    driver: str
    plugins_directory: Path = PLUGINS_DIRECTORY
    registry_directory: Path = REGISTRY_DIRECTORY
    pod_uid: str = ""
    single_socket: bool = False
    versions: tuple[DraVersion, ...] = DRA_VERSIONS
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        for what, name in (("driver name", self.driver), ("pod UID", self.pod_uid or "x")):
            if not name or name.startswith(".") or "/" in name or "\0" in name:
                raise InputError(f"{what} {name!r} can't be part of a socket's name", hint="use a DNS subdomain")
        unknown = [version for version in self.versions if version not in DRA_VERSIONS]
        if unknown or not self.versions:
            raise InputError(
                f"DRA API versions {list(self.versions)} of driver {self.driver}: expected some of {list(DRA_VERSIONS)}"
            )


class PluginServer:
    """Serves one driver to the kubelet.

    Args:
        health: what the kubelet is told about the devices; without it no health service is offered.
        observer: told about every call.
        on_registration: called when the kubelet registers or refuses the driver, and when its socket is in trouble.
        clock: Unix seconds.
    """

    def __init__(
        self,
        options: PluginOptions,
        preparer: ClaimPreparer,
        *,
        health: HealthSource | None = None,
        observer: CallObserver | None = None,
        on_registration: Callable[[RegistrationState], None] = lambda state: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        driver = options.driver
        self._calls = Calls(driver, observer or SilentObserver())
        self._feed = HealthFeed(health, clock=clock) if health is not None else None
        offered = [version for version in DRA_VERSIONS if version in options.versions]
        services = DraService(driver, preparer, self._calls).handlers(offered)
        supported = [f"{version}.DRAPlugin" for version in offered]
        if self._feed is not None:
            services += health_handlers(self._feed, clock)
            supported += [f"{version}.DRAResourceHealth" for version in HEALTH_VERSIONS]

        own = sockets.registration_socket(options.registry_directory, driver, options.pod_uid)
        purpose = f"registration socket of driver {driver}"
        self.registration_socket = own
        if options.single_socket:
            self._dra: UnixServer | None = None
            self.endpoint = own
        else:
            self.endpoint = sockets.dra_socket(options.plugins_directory / driver, driver, options.pod_uid)
            self._dra = UnixServer(self.endpoint, services, purpose=f"DRA socket of driver {driver}")
        self._registration = RegistrationService(
            driver, "" if options.single_socket else str(self.endpoint), tuple(supported), on_registration
        )
        registrar = [self._registration.handler()]
        self._registrar = UnixServer(own, services + registrar if options.single_socket else registrar, purpose=purpose)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def registration(self) -> RegistrationState:
        """The kubelet's last word about this driver."""
        return self._registration.state

    async def wait_registered(self) -> None:
        """Returns once the kubelet has registered the driver."""
        await self._registration.wait_registered()

    async def start(self) -> None:
        """Serves; returns before the kubelet has registered the driver.

        A registration directory that can't be had yet is waited for and shown in ``registration``.

        Raises:
            sockets.SocketInUse: another instance serves one of the paths.
            EnvironmentFault: the DRA socket can't be created.
        """
        if self._dra is not None:
            await self._dra.start()
        try:
            await self._registrar.start()
        except sockets.SocketInUse:
            if self._dra is not None:
                await self._dra.stop(0)
            raise
        except EnvironmentFault as error:
            self._trouble(self._registrar, str(error))
        if self._feed is not None:
            self._tasks.append(asyncio.create_task(self._feed.run()))
        self._tasks.append(asyncio.create_task(self._look_after()))

    async def stop(self, grace: float) -> None:
        """Deregisters, refuses new calls, gives running ones ``grace`` seconds, removes the sockets.

        Removing the registration socket makes the kubelet close its connection after about a second; what a call that
        is still running then achieves is found by the kubelet's next attempt.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        try:
            await self._registrar.withdraw()
        except EnvironmentFault as error:
            logger.warning("%s: %s", self._options.driver, error)
        self._registration.void(f"driver {self._options.driver} is stopping")
        if self._feed is not None:
            self._feed.close()
        await self._calls.drain(grace)
        for server in (self._dra, self._registrar):
            if server is None:
                continue
            try:
                await server.stop(_FLUSH_SECONDS)
            except EnvironmentFault as error:
                logger.warning("%s: %s", self._options.driver, error)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_seconds)
            if self._dra is not None:
                await self._upkeep(self._dra)
            await self._upkeep(self._registrar)

    async def _upkeep(self, server: UnixServer) -> None:
        driver = self._options.driver
        try:
            found = await server.keep()
            if found is Upkeep.TAKEN:
                raise EnvironmentFault(
                    f"socket {server.path} of driver {driver} was replaced by {server.owner()}",
                    hint="stop that process; two instances need the pod UID in their socket names",
                )
        except EnvironmentFault as error:
            self._trouble(server, str(error))
            return
        if found is Upkeep.RESTORED:
            logger.warning("%s: socket %s was not there and was created", driver, server.path)
            if server is self._registrar:
                self._registration.void()
        self._registration.trouble(str(server.path), "")

    def _trouble(self, server: UnixServer, problem: str) -> None:
        if problem not in self._registration.state.problem:
            logger.error("%s: %s", self._options.driver, problem)
        if server is self._registrar:
            self._registration.void()
        self._registration.trouble(str(server.path), problem)
