"""`deploy/overlays/described` on a cluster without GPUs: a DGX H100, until a container looks for devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster import manifests
from tests.cluster.availability import Unavailable, skip_or_fail
from tests.cluster.gpu_node import GpuNode
from tests.cluster.node import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def described() -> Iterator[GpuNode]:
    """A node of its own, because a node has one driver of a name; applied as shipped but for the kubelet's root."""
    try:
        cluster = Cluster(node_name="described-a")
    except Unavailable as reason:
        skip_or_fail(reason)
    try:
        cluster.start()
        node = GpuNode(cluster, present=False)
        try:
            node.deploy(manifests.DESCRIBED)
        except Unavailable as reason:
            skip_or_fail(reason)
        yield node
        node.close()
    finally:
        cluster.close()


def test_publishes_the_described_machine(described: GpuNode) -> None:
    devices = described.devices()

    assert sorted(devices) == [f"gpu-{minor}" for minor in range(8)]
    assert {device["attributes"]["productName"]["string"] for device in devices.values()} == {"NVIDIA H100 80GB HBM3"}


def test_container_gets_variables_that_say_what_it_stands_for(described: GpuNode) -> None:
    described.cluster.apply(manifests.EXAMPLES / "two-gpus-one-pcie-root.yaml")
    described.cluster.apply(manifests.EXAMPLES / "one-gpu.yaml")
    pod = described.cluster.wait_pod("one-gpu")
    (device,) = described.devices_of(pod, "main")
    uuid = described.devices()[device]["attributes"]["uuid"]["string"]

    environment = described.cluster.exec("one-gpu", "env")
    minor = device.removeprefix("gpu-")

    assert "DRA_DRIVER_DESCRIBED_MACHINE=profile:dgx-h100\n" in environment
    assert re.findall(r"^(DRA_DRIVER_DESCRIBED_GPU_\d+)=(.*)$", environment, re.MULTILINE) == [
        (f"DRA_DRIVER_DESCRIBED_GPU_{minor}", uuid)
    ]
    # On this machine no two GPUs share a root complex: the Pod that asks for that waits, as it would on the real one.
    events = described.cluster.events("default", "two-gpus-one-pcie-root")
    assert any(event.startswith("FailedScheduling") for event in events), events
    for name in ("one-gpu", "two-gpus-one-pcie-root"):
        described.cluster.kubectl("delete", "--filename", str(manifests.EXAMPLES / f"{name}.yaml"), "--wait=true")
    described.cluster.wait("nothing to be left", described.nothing_is_left)


def test_deleting_the_deployment_takes_the_slices_along(described: GpuNode) -> None:
    described.cluster.kubectl("delete", "-k", str(manifests.DESCRIBED), "--wait=true")

    # The kubelet removes them half a minute after the driver's last instance has left.
    described.cluster.wait("the slices to be gone", lambda: described.slices() == [], timeout=180)
    assert list(described.cluster.registry_dir.iterdir()) == []
    assert described.cluster.api.get("/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com")[0] == 404
