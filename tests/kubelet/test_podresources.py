"""Claims in use, as the kubelet's PodResources API tells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.pb import podresources_v1_pb2 as pb
from dra_driver.kubelet.podresources import DeviceKey, PodResources
from dra_driver.kubelet.sockets import grpc_address
from dra_driver.kubelet.wire import Context, new_server, rpc_handler, service


def container(name: str, **claims: list[pb.ClaimResource]) -> pb.ContainerResources:
    return pb.ContainerResources(
        name=name,
        dynamic_resources=[
            pb.DynamicResource(claim_namespace="ml", claim_name=claim, claim_resources=devices)
            for claim, devices in claims.items()
        ],
    )


def device(name: str, driver: str = "gpu.example.com", share: str | None = None) -> pb.ClaimResource:
    return pb.ClaimResource(driver_name=driver, pool_name="node-1", device_name=name, share_id=share)


TRAINER = pb.PodResources(
    namespace="ml",
    name="trainer",
    containers=[
        container("main", a=[device("gpu-0"), device("gpu-1", share="s")], b=[device("nic-0", "nic.example.com")]),
        container("sidecar", a=[device("gpu-0")]),
        container("plain"),
    ],
)


@asynccontextmanager
async def kubelet(socket: Path, pods: list[pb.PodResources], error: str = "") -> AsyncIterator[PodResources]:
    """The kubelet's side of the API."""

    async def list_pods(request: Any, context: Context) -> pb.ListPodResourcesResponse:
        if error:
            await context.abort(grpc.StatusCode.UNKNOWN, error)
        return pb.ListPodResourcesResponse(pod_resources=pods)

    async def get_pod(request: pb.GetPodResourcesRequest, context: Context) -> pb.GetPodResourcesResponse:
        for pod in pods:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return pb.GetPodResourcesResponse(pod_resources=pod)
        await context.abort(
            grpc.StatusCode.UNKNOWN, error or f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        )

    server = new_server(
        [rpc_handler(service(pb.DESCRIPTOR, "PodResourcesLister"), {"List": list_pods, "Get": get_pod})]
    )
    server.add_insecure_port(grpc_address(socket))
    await server.start()
    try:
        yield PodResources(socket)
    finally:
        await server.stop(None)


DEVICES_OF_A = {
    DeviceKey("gpu.example.com", "node-1", "gpu-0", None),
    DeviceKey("gpu.example.com", "node-1", "gpu-1", "s"),
}


async def test_claims_in_use(root: Path) -> None:
    other = pb.PodResources(namespace="ml", name="other", containers=[container("main", c=[])])
    async with kubelet(root / "kubelet.sock", [TRAINER, other]) as resources:
        assert await resources.claims_in_use() == {("ml", "a"), ("ml", "b"), ("ml", "c")}
        assert await resources.devices_in_use() == {
            ("ml", "a"): DEVICES_OF_A,
            ("ml", "b"): {DeviceKey("nic.example.com", "node-1", "nic-0", None)},
            ("ml", "c"): set(),
        }


async def test_a_node_without_pods(root: Path) -> None:
    async with kubelet(root / "kubelet.sock", []) as resources:
        assert await resources.claims_in_use() == set()


async def test_claims_of_a_pod(root: Path) -> None:
    async with kubelet(root / "kubelet.sock", [TRAINER]) as resources:
        found = await resources.claims_of_pod("ml", "trainer")
        assert found is not None
        assert found["ml", "a"] == DEVICES_OF_A
        assert await resources.claims_of_pod("ml", "gone") is None


async def test_answers_of_more_than_four_mebibytes(root: Path) -> None:
    names = [f"{number:04}-{'x' * 1000}" for number in range(5000)]
    pod = pb.PodResources(containers=[container("main", **{name: [] for name in names})])
    async with kubelet(root / "kubelet.sock", [pod]) as resources:
        assert len(await resources.claims_in_use()) == 5000


async def test_no_kubelet_is_never_no_claims(root: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        await PodResources(root / "kubelet.sock").claims_in_use()
    assert str(caught.value) == (
        f"the kubelet's PodResources socket {root}/kubelet.sock is not there "
        "(is the kubelet running, and its pod-resources directory mounted into the driver's Pod?)"
    )


async def test_the_kubelets_error_is_told(root: Path) -> None:
    async with kubelet(root / "kubelet.sock", [], error="not yet") as resources:
        with pytest.raises(EnvironmentFault, match=r"does not answer List on .*kubelet\.sock: UNKNOWN: not yet"):
            await resources.claims_in_use()
        with pytest.raises(EnvironmentFault, match=r"does not answer Get on .*: UNKNOWN: not yet"):
            await resources.claims_of_pod("ml", "trainer")


async def test_a_dead_socket(root: Path) -> None:
    async with kubelet(root / "live.sock", []):
        (root / "live.sock").rename(root / "kubelet.sock")
    assert (root / "kubelet.sock").is_socket()
    with pytest.raises(EnvironmentFault, match=r"does not answer List .* UNAVAILABLE"):
        await PodResources(root / "kubelet.sock").claims_in_use()
