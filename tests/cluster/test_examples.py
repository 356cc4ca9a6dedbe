"""Every file of `examples/` runs as it is, and each container sees exactly the GPUs that its claim says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cluster import manifests
from tests.cluster.apiserver import Json
from tests.cluster.container_view import assert_has_what_the_spec_says, assert_sees_exactly
from tests.cluster.gpu_node import DRIVER, GpuNode

pytestmark = pytest.mark.integration

CORE_PODS = {
    "one-gpu": ["one-gpu"],
    "two-gpus-one-pcie-root": ["two-gpus-one-pcie-root"],
    "same-nvlink-domain": ["same-nvlink-domain"],
    "first-available": ["first-available"],
    "shared-claim": ["shared-claim-first", "shared-claim-second"],
    "admin-access": ["gpu-monitor"],
}
"""Examples whose Pods are written out, with the Pods' names."""
OTHERS = {"deployment", "job", "extended-resource"}


def test_every_example_is_run() -> None:
    assert {path.stem for path in manifests.EXAMPLES.glob("*.yaml")} == {*CORE_PODS, *OTHERS}


@pytest.fixture
def example(gpu_node: GpuNode, request: pytest.FixtureRequest) -> Iterator[GpuNode]:
    """The example named by the test's parameter, applied; removed afterwards, leaving nothing."""
    path = manifests.EXAMPLES / f"{request.param}.yaml"
    gpu_node.cluster.apply(path)
    yield gpu_node
    gpu_node.cluster.kubectl("delete", "--filename", str(path), "--ignore-not-found", "--wait=true")
    gpu_node.cluster.wait("nothing of the example to be left", gpu_node.nothing_is_left)


def running(node: GpuNode, name: str) -> list[Json]:
    """The example's Pods, all running."""
    namespace = "gpu-admin" if name == "admin-access" else "default"
    return [node.cluster.wait_pod(pod, namespace=namespace) for pod in CORE_PODS[name]]


def attribute(node: GpuNode, device: str, name: str) -> object:
    """Value of a published attribute, None when the device has none."""
    (value,) = node.devices()[device]["attributes"].get(name, {"none": None}).values()
    return value


@pytest.mark.parametrize(("example", "name"), [(name, name) for name in CORE_PODS], indirect=["example"])
def test_containers_see_exactly_what_was_claimed(example: GpuNode, name: str) -> None:
    for pod in running(example, name):
        for container in pod["spec"]["containers"]:
            devices = example.devices_of(pod, container["name"])
            assert devices != []
            assert_sees_exactly(example, pod, container["name"], devices)


@pytest.mark.parametrize("example", ["one-gpu"], indirect=True)
def test_one_gpu_container_has_what_the_spec_says(example: GpuNode) -> None:
    (pod,) = running(example, "one-gpu")
    (claim,) = example.claims()
    devices = example.allocated(claim)
    (spec,) = example.cdi_specs()

    assert len(devices) == 1
    assert [name for name in example.cdi_files() if claim["metadata"]["uid"] in name] == example.cdi_files()
    assert_has_what_the_spec_says(example, pod, "main", spec, devices)
    assert f"/dev/{devices[0].replace('gpu-', 'nvidia')}" in example.cluster.pod_log("one-gpu")


@pytest.mark.parametrize("example", ["two-gpus-one-pcie-root"], indirect=True)
def test_two_gpus_share_their_pcie_root(example: GpuNode) -> None:
    running(example, "two-gpus-one-pcie-root")
    (claim,) = example.claims()
    first, second = example.allocated(claim)

    root = attribute(example, first, "resource.kubernetes.io/pcieRoot")
    assert root == attribute(example, second, "resource.kubernetes.io/pcieRoot")
    assert re.fullmatch(r"pci[0-9a-f]{4}:[0-9a-f]{2}", str(root))


@pytest.mark.parametrize("example", ["same-nvlink-domain"], indirect=True)
def test_containers_of_one_claim_get_one_gpu_each_of_one_nvlink_domain(example: GpuNode) -> None:
    (pod,) = running(example, "same-nvlink-domain")
    left, right = (example.devices_of(pod, container) for container in ("left", "right"))

    assert len(left) == len(right) == 1
    assert left != right
    domain = attribute(example, left[0], "nvlinkDomain")
    assert domain == attribute(example, right[0], "nvlinkDomain")
    assert domain is not None


@pytest.mark.parametrize("example", ["first-available"], indirect=True)
def test_first_alternative_that_the_node_has_is_taken(example: GpuNode) -> None:
    running(example, "first-available")
    (claim,) = example.claims()
    results = claim["status"]["allocation"]["devices"]["results"]

    assert {result["request"] for result in results} == {"compute/two-medium"}  # the GPUs have 80 GiB
    assert len(results) == 2


@pytest.mark.parametrize("example", ["shared-claim"], indirect=True)
def test_pods_of_a_shared_claim_have_the_same_gpu(example: GpuNode) -> None:
    first, second = running(example, "shared-claim")

    assert example.devices_of(first, "one") == example.devices_of(first, "two") == example.devices_of(second, "main")
    assert len(example.cdi_files()) == 1
    example.cluster.delete_pod(first["metadata"]["name"])
    assert len(example.cdi_files()) == 1  # the other Pod still uses it
    assert_sees_exactly(example, second, "main", example.devices_of(second, "main"))


@pytest.mark.parametrize("example", ["admin-access"], indirect=True)
def test_admin_sees_all_gpus_while_workloads_use_them(example: GpuNode) -> None:
    (monitor,) = running(example, "admin-access")
    assert example.devices_of(monitor, "monitor") == sorted(example.devices())

    ordinary = manifests.EXAMPLES / "one-gpu.yaml"
    example.cluster.apply(ordinary)
    try:
        example.cluster.wait_pod("one-gpu")
    finally:
        example.cluster.kubectl("delete", "--filename", str(ordinary), "--wait=true")


@pytest.mark.parametrize("example", ["deployment"], indirect=True)
def test_replicas_of_a_deployment_have_different_gpus(example: GpuNode) -> None:
    example.cluster.kubectl("rollout", "status", "deployment/gpu-deployment", "--timeout=180s")
    pods = example.cluster.pods("app=gpu-deployment")
    seen = [example.devices_of(pod, "main") for pod in pods]

    assert [len(devices) for devices in seen] == [1, 1]
    assert seen[0] != seen[1]
    for pod, devices in zip(pods, seen, strict=True):
        assert_sees_exactly(example, pod, "main", devices)


@pytest.mark.parametrize("example", ["job"], indirect=True)
def test_every_task_of_a_job_had_one_gpu_and_gives_it_back(example: GpuNode) -> None:
    example.cluster.kubectl("wait", "job/gpu-job", "--for=condition=complete", "--timeout=180s")
    pods = example.cluster.pods("job-name=gpu-job")

    logs = [example.cluster.pod_log(pod["metadata"]["name"]) for pod in pods]
    assert sorted(log.splitlines()[0] for log in logs) == [f"task {number}" for number in range(4)]
    assert [len(re.findall(r"/dev/nvidia\d+$", log, re.MULTILINE)) for log in logs] == [1] * 4
    # The finished Pods are still there; their GPUs are not held any more.
    example.cluster.wait("all specs and records to be gone", lambda: not example.cdi_files() + example.records())


@pytest.fixture
def extended_resource_class(gpu_node: GpuNode) -> Iterator[None]:
    """The opt-in class variant in force; the ordinary one again afterwards."""
    gpu_node.cluster.apply(manifests.EXTENDED_RESOURCE_CLASS)
    yield
    gpu_node.cluster.kubectl("replace", "--filename", str(manifests.DEVICE_CLASSES / f"{DRIVER}.yaml"))


@pytest.mark.usefixtures("extended_resource_class")
@pytest.mark.parametrize("example", ["extended-resource"], indirect=True)
def test_extended_resource_is_served_by_a_claim_that_nobody_wrote(example: GpuNode) -> None:
    pod = example.cluster.wait_pod("extended-resource")
    (claim,) = example.claims()

    assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]
    devices = example.allocated(claim)
    assert len(devices) == 1
    assert_sees_exactly(example, pod, "main", devices)
