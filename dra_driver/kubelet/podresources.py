"""Which claims the containers of this node use, from the kubelet itself (PodResources v1).

The answer covers every Pod of the node and can pass gRPC's usual 4 MiB. A kubelet that can't be asked is an
EnvironmentFault, never an empty answer: who collects leftovers must not take "unknown" for "unused".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.pb import podresources_v1_pb2 as pb
from dra_driver.kubelet.sockets import grpc_address
from dra_driver.kubelet.wire import new_channel, service, unary

POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_LISTER = service(pb.DESCRIPTOR, "PodResourcesLister")


class DeviceKey(NamedTuple):
    """An allocated device as the kubelet names it."""

    driver: str
    pool: str
    device: str
    share_id: str | None


ClaimKey = tuple[str, str]  # namespace, name
ClaimsInUse = dict[ClaimKey, frozenset[DeviceKey]]


class PodResources:
    """Asks the kubelet; every question opens a connection of its own, as they are minutes apart.

    Args:
        socket: the kubelet's PodResources socket.
        timeout: seconds for an answer, connecting included.
    """

    def __init__(self, socket: Path = POD_RESOURCES_SOCKET, *, timeout: float = 10.0) -> None:
        self._socket = socket
        self._timeout = timeout

    async def claims_in_use(self) -> set[ClaimKey]:
        """(namespace, name) of each claim that a container of a Pod on this node uses.

        Raises:
            EnvironmentFault: the kubelet can't be asked.
        """
        return set(await self.devices_in_use())

    async def devices_in_use(self) -> ClaimsInUse:
        """The same claims with their devices, of all drivers.

        Raises:
            EnvironmentFault: the kubelet can't be asked.
        """
        answer: pb.ListPodResourcesResponse = await self._ask("List", pb.ListPodResourcesRequest())
        return _claims(answer.pod_resources)

    async def claims_of_pod(self, namespace: str, name: str) -> ClaimsInUse | None:
        """Claims with their devices of one Pod; None when the kubelet runs no such Pod.

        Raises:
            EnvironmentFault: the kubelet can't be asked.
        """
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        try:
            answer: pb.GetPodResourcesResponse = await self._ask("Get", request)
        except _PodNotFound:
            return None
        return _claims([answer.pod_resources])

    async def _ask(self, method: str, request: Any) -> Any:
        channel = new_channel(grpc_address(self._socket), max_message_bytes=_MAX_MESSAGE_BYTES)
        try:
            return await unary(channel, _LISTER, method)(request, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise self._fault(method, error) from error
        finally:
            await channel.close(None)

    def _fault(self, method: str, error: grpc.aio.AioRpcError) -> EnvironmentFault:
        # The kubelet has no status code for it: Unknown with "pod <name> in namespace <namespace> not found".
        if method == "Get" and error.code() is grpc.StatusCode.UNKNOWN and "not found" in (error.details() or ""):
            return _PodNotFound(error.details() or "")
        if not self._socket.exists():
            return EnvironmentFault(
                f"the kubelet's PodResources socket {self._socket} is not there",
                hint="is the kubelet running, and its pod-resources directory mounted into the driver's Pod?",
            )
        return EnvironmentFault(
            f"the kubelet does not answer {method} on {self._socket}: {error.code().name}: {error.details()}"
        )


class _PodNotFound(EnvironmentFault):
    pass


def _claims(pods: Any) -> ClaimsInUse:
    found: dict[ClaimKey, set[DeviceKey]] = {}
    for pod in pods:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                devices = found.setdefault((claim.claim_namespace, claim.claim_name), set())
                devices.update(
                    DeviceKey(
                        device.driver_name,
                        device.pool_name,
                        device.device_name,
                        device.share_id if device.HasField("share_id") else None,
                    )
                    for device in claim.claim_resources
                )
    return {claim: frozenset(devices) for claim, devices in found.items()}
