"""A stand-in for the kubelet, for ``dra-driver demo`` on a machine without Kubernetes.

It finds registration sockets, registers drivers as the kubelet does and calls them; nothing else of a kubelet is here:
no Pods, no retries, no checkpoint. Whether the driver works with a kubelet is proved by the tests with the kubelet's
own code, not with this.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import grpc
import grpc.aio

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.pb import dra_v1_pb2, dra_v1beta1_pb2, registration_v1_pb2
from dra_driver.kubelet.registration import PLUGIN_TYPE
from dra_driver.kubelet.sockets import FileIdentity, grpc_address, identity
from dra_driver.kubelet.wire import new_channel, service, unary
from dra_driver.model.prepared import ClaimRef, PreparedDevice

logger = logging.getLogger(__name__)

_KNOWN: Mapping[str, ModuleType] = {"v1.DRAPlugin": dra_v1_pb2, "v1beta1.DRAPlugin": dra_v1beta1_pb2}
_REGISTRATION = service(registration_v1_pb2.DESCRIPTOR, "Registration")
# The kubelet's own patience with GetInfo, NotifyRegistrationStatus and claims.
_INFO_SECONDS, _NOTIFY_SECONDS, _CALL_SECONDS = 1.0, 5.0, 45.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RegisteredPlugin:
    """A driver that registered.

    Attributes:
        version: the API it is called with, e.g. ``v1.DRAPlugin``.
    """

    driver: str
    endpoint: str
    version: str
    supported: tuple[str, ...]
    socket: Path


class KubeletStandIn:
    """Use it as an async context manager; drivers in ``registry_directory`` are registered while it runs."""

    def __init__(self, registry_directory: Path) -> None:
        self._directory = registry_directory
        self._seen: dict[Path, FileIdentity] = {}
        self._plugins: dict[Path, RegisteredPlugin] = {}
        self._channels: dict[Path, grpc.aio.Channel] = {}
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> KubeletStandIn:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for path in tuple(self._channels):
            await self._drop(path)

    async def registered(self, driver: str, timeout: float = 10.0) -> RegisteredPlugin:
        """Waits for the driver.

        Raises:
            EnvironmentFault: it did not register in ``timeout`` seconds.
        """
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self._find(driver) is not None)
        except TimeoutError as error:
            raise EnvironmentFault(f"driver {driver} did not register in {self._directory} in {timeout:g} s") from error
        plugin = self._find(driver)
        if plugin is None:
            raise EnvironmentFault(f"driver {driver} is not registered any more")
        return plugin

    async def deregistered(self, driver: str, timeout: float = 10.0) -> None:
        """Waits until the driver's registration socket is gone.

        Raises:
            EnvironmentFault: it is still there after ``timeout`` seconds.
        """
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self._find(driver) is None)
        except TimeoutError as error:
            raise EnvironmentFault(f"driver {driver} is still registered after {timeout:g} s") from error

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> dict[str, tuple[PreparedDevice, ...] | str]:
        """NodePrepareResources: by claim UID the devices, or the error as text.

        Raises:
            EnvironmentFault: the driver is not registered or the call failed as a whole.
        """
        response = await self._call(driver, "NodePrepareResources", claims)
        return {uid: entry.error or tuple(map(_device, entry.devices)) for uid, entry in response.claims.items()}

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> dict[str, str]:
        """NodeUnprepareResources: by claim UID the error as text, empty when done.

        Raises:
            EnvironmentFault: the driver is not registered or the call failed as a whole.
        """
        response = await self._call(driver, "NodeUnprepareResources", claims)
        return {uid: entry.error for uid, entry in response.claims.items()}

    async def _call(self, driver: str, method: str, claims: Sequence[ClaimRef]) -> Any:
        plugin = self._find(driver)
        if plugin is None:
            raise EnvironmentFault(f"DRA driver {driver} is not registered")
        messages = _KNOWN[plugin.version]
        request = getattr(messages, f"{method}Request")()
        for claim in claims:
            request.claims.add(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        call = unary(self._channels[plugin.socket], service(messages.DESCRIPTOR, "DRAPlugin"), method)
        try:
            return await call(request, timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise EnvironmentFault(f"{method} of driver {driver}: {error.code().name}: {error.details()}") from error

    async def _watch(self) -> None:
        while True:
            found = self._sockets()
            for path, file in tuple(self._seen.items()):
                if found.get(path) != file:
                    del self._seen[path]
                    await self._drop(path)
            for path, file in found.items():
                if path not in self._seen:
                    self._seen[path] = file
                    await self._register(path)
            await asyncio.sleep(_POLL_SECONDS)

    def _sockets(self) -> dict[Path, FileIdentity]:
        found = {}
        for path in sorted(self._directory.iterdir()):
            file = identity(path)
            if file is None or path.name.startswith("."):
                continue
            try:
                if stat.S_ISSOCK(path.lstat().st_mode):
                    found[path] = file
            except FileNotFoundError:
                continue  # removed since it was listed
        return found

    async def _register(self, path: Path) -> None:
        channel = new_channel(grpc_address(path))
        try:
            info = await unary(channel, _REGISTRATION, "GetInfo")(
                registration_v1_pb2.InfoRequest(), timeout=_INFO_SECONDS
            )
            version = next((version for version in info.supported_versions if version in _KNOWN), None)
            problem = ""
            if info.type != PLUGIN_TYPE:
                problem = f"no handler registered for plugin type: {info.type}"
            elif version is None:
                problem = f"none of services supported by the plugin {list(info.supported_versions)} are supported"
            status = registration_v1_pb2.RegistrationStatus(plugin_registered=not problem, error=problem)
            await unary(channel, _REGISTRATION, "NotifyRegistrationStatus")(status, timeout=_NOTIFY_SECONDS)
        except grpc.aio.AioRpcError as error:
            logger.warning("registration at %s failed: %s: %s", path, error.code().name, error.details())
            return
        finally:
            await channel.close(None)
        if version is None or problem:
            return
        endpoint = info.endpoint or str(path)
        async with self._changed:
            self._channels[path] = new_channel(grpc_address(Path(endpoint)))
            self._plugins[path] = RegisteredPlugin(info.name, endpoint, version, tuple(info.supported_versions), path)
            self._changed.notify_all()

    async def _drop(self, path: Path) -> None:
        async with self._changed:
            self._plugins.pop(path, None)
            channel = self._channels.pop(path, None)
            self._changed.notify_all()
        if channel is not None:
            await channel.close(None)

    def _find(self, driver: str) -> RegisteredPlugin | None:
        """The latest instance registered."""
        return next((plugin for plugin in reversed(self._plugins.values()) if plugin.driver == driver), None)


def _device(message: Any) -> PreparedDevice:
    share = (
        message.share_id if "share_id" in message.DESCRIPTOR.fields_by_name and message.HasField("share_id") else None
    )
    return PreparedDevice(
        tuple(message.request_names), message.pool_name, message.device_name, tuple(message.cdi_device_ids), share
    )
