"""What happens to nodes happens to the driver: crashes, restarts, outages, updates, reboots. Pods keep their GPUs,
nothing is left behind, and the next Pod gets one.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import containers, manifests
from tests.cluster.apiserver import Json
from tests.cluster.container_view import assert_sees_exactly
from tests.cluster.gpu_node import DRIVER, GpuNode

pytestmark = pytest.mark.integration

CONTAINER = "main"


def gpu_pod(name: str, *, parameters: Json | None = None) -> list[Json]:
    """A Pod with one GPU of a claim of its own, with an opaque configuration when ``parameters`` are given."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    devices: Json = {"requests": [request]}
    if parameters is not None:
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": "busybox:1.37",
                    "command": ["sleep", "infinity"],
                    "resources": {"claims": [{"name": "gpu"}]},
                }
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        },
    }
    return [template, pod]


Start = Callable[[str], Json]


@pytest.fixture
def start(gpu_node: GpuNode) -> Iterator[Start]:
    """Starts a Pod with a GPU and checks it from inside; afterwards all of them are deleted and must leave nothing."""
    started: list[str] = []

    def start_and_check(name: str) -> Json:
        started.append(name)
        gpu_node.cluster.apply(gpu_pod(name))
        pod = gpu_node.cluster.wait_pod(name)
        check(gpu_node, pod)
        return pod

    yield start_and_check
    for name in started:
        if gpu_node.cluster.api.get(f"/api/v1/namespaces/default/pods/{name}")[0] == 200:
            gpu_node.cluster.delete_pod(name)
        gpu_node.cluster.kubectl("delete", "resourceclaimtemplate", name)
    gpu_node.cluster.wait("nothing to be left", gpu_node.nothing_is_left, timeout=180)
    gpu_node.wait_ready()


def check(node: GpuNode, pod: Json) -> None:
    """The Pod's container sees its one GPU and no other."""
    devices = node.devices_of(pod, CONTAINER)
    assert len(devices) == 1
    assert_sees_exactly(node, pod, CONTAINER, devices)


def test_deleted_pod_leaves_no_spec_record_or_reservation(gpu_node: GpuNode, start: Start) -> None:
    start("deleted")
    assert len(gpu_node.cdi_files()) == len(gpu_node.records()) == 1
    (claim,) = gpu_node.claims()
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["deleted"]

    gpu_node.cluster.delete_pod("deleted")

    # The kubelet holds the Pod until the driver has answered, so there is nothing to wait for.
    assert gpu_node.cdi_files() == []
    assert gpu_node.records() == []
    gpu_node.cluster.wait("the claim to be gone", lambda: gpu_node.claims() == [])


def test_killed_driver_comes_back_with_what_it_knew(gpu_node: GpuNode, start: Start) -> None:
    before = start("killed-before")
    slices = [item["metadata"]["uid"] for item in gpu_node.slices()]
    pid = gpu_node.pid()

    os.kill(pid, signal.SIGKILL)

    after = start("killed-after")
    assert gpu_node.pid() != pid
    check(gpu_node, before)
    assert gpu_node.devices_of(before, CONTAINER) != gpu_node.devices_of(after, CONTAINER)
    assert [item["metadata"]["uid"] for item in gpu_node.slices()] == slices
    gpu_node.cluster.delete_pod("killed-before")  # prepared by the process that was killed
    assert len(gpu_node.cdi_files()) == len(gpu_node.records()) == 1


@pytest.mark.parametrize(
    "moment", ["when the claim is there", "when the spec is written", "when the record is written"]
)
def test_driver_killed_while_it_prepares(gpu_node: GpuNode, start: Start, moment: str) -> None:
    moments: dict[str, Callable[[], bool]] = {
        "when the claim is there": lambda: bool(gpu_node.claims()),
        "when the spec is written": lambda: bool(gpu_node.cdi_files()),
        "when the record is written": lambda: bool(gpu_node.records()),
    }
    reached = moments[moment]
    name = "killed-" + moment.split()[2]
    pid = gpu_node.pid()
    gpu_node.cluster.apply(gpu_pod(name))
    while not reached():
        pass
    os.kill(pid, signal.SIGKILL)

    start(name)

    assert len(gpu_node.cdi_files()) == len(gpu_node.records()) == 1


def test_driver_killed_while_the_pod_is_deleted(gpu_node: GpuNode, start: Start) -> None:
    start("killed-deleting")
    pid = gpu_node.pid()
    deleting = subprocess.Popen(
        [*gpu_node.cluster.api.kubectl_command(), "delete", "pod", "killed-deleting", "--grace-period=1"],
        stdout=subprocess.DEVNULL,
    )
    while gpu_node.cdi_files():
        pass
    os.kill(pid, signal.SIGKILL)

    assert deleting.wait() == 0
    assert gpu_node.records() == []
    assert gpu_node.cdi_files() == []


def test_kubelet_restart_keeps_pods_and_brings_the_wiped_slices_back(gpu_node: GpuNode, start: Start) -> None:
    pod = start("kubelet-restart")
    running = gpu_node.cluster.container_pid("kubelet-restart")
    wiped = {item["metadata"]["uid"] for item in gpu_node.slices()}

    gpu_node.cluster.restart_kubelet()

    gpu_node.cluster.wait(
        "new slices", lambda: bool(gpu_node.devices()) and not wiped & {s["metadata"]["uid"] for s in gpu_node.slices()}
    )
    assert gpu_node.cluster.container_pid("kubelet-restart") == running
    check(gpu_node, pod)
    start("kubelet-restarted")


def test_pod_deleted_while_the_kubelet_is_down(gpu_node: GpuNode, start: Start) -> None:
    start("kubelet-down")
    gpu_node.cluster.stop_kubelet(signal.SIGKILL)
    gpu_node.cluster.delete_pod("kubelet-down", force=True)
    assert len(gpu_node.records()) == 1

    gpu_node.cluster.start_kubelet()

    gpu_node.cluster.wait("spec and record to be collected", lambda: not gpu_node.cdi_files() + gpu_node.records())


def test_force_deleted_pod_leaves_nothing(gpu_node: GpuNode, start: Start) -> None:
    start("forced")

    gpu_node.cluster.delete_pod("forced", force=True)

    gpu_node.cluster.wait("nothing to be left", gpu_node.nothing_is_left, timeout=180)
    start("after-forced")


def test_api_server_outage_does_not_end_the_driver(gpu_node: GpuNode, start: Start) -> None:
    pod = start("outage")
    pid, slices = gpu_node.pid(), gpu_node.slices()

    gpu_node.cluster.stop_apiserver()
    # Longer than a watch needs to notice; the probes of the kubelet go on meanwhile.
    with pytest.raises(OSError, match="refused"):
        gpu_node.cluster.api.get("/version")
    gpu_node.cluster.start_apiserver()

    after = start("after-outage")
    assert gpu_node.pid() == pid
    assert gpu_node.slices() == slices
    check(gpu_node, pod)
    assert gpu_node.devices_of(pod, CONTAINER) != gpu_node.devices_of(after, CONTAINER)


def test_slices_deleted_by_somebody_come_back(gpu_node: GpuNode) -> None:
    devices = gpu_node.devices()

    gpu_node.cluster.kubectl("delete", "resourceslices", "--all")

    gpu_node.cluster.wait("the slices", lambda: gpu_node.devices() == devices)


def test_rolling_update_never_leaves_the_node_without_a_driver(gpu_node: GpuNode, start: Start) -> None:
    before = start("before-update")
    slices = gpu_node.slices()
    (old,) = gpu_node.pods()
    patch = {"spec": {"template": {"metadata": {"annotations": {"update": "1"}}}}}
    path = f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/daemonsets/{manifests.DAEMON_SET}"
    assert gpu_node.cluster.api.patch(path, patch)[0] == 200

    gpu_node.cluster.wait("both instances", lambda: len(gpu_node.pods()) == 2)
    during = start("during-update")
    gpu_node.cluster.wait(
        "the old instance to be gone",
        lambda: (
            [pod["metadata"]["uid"] for pod in gpu_node.pods()] != [old["metadata"]["uid"]]
            and len(gpu_node.pods()) == 1
        ),
    )
    new = gpu_node.wait_ready()
    gpu_node.cluster.wait_gone(f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/{old['metadata']['name']}")

    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert gpu_node.slices() == slices
    after = start("after-update")
    allocated = {name for pod in (before, during, after) for name in gpu_node.devices_of(pod, CONTAINER)}
    assert len(allocated) == 3
    sockets = [path.name for path in gpu_node.cluster.registry_dir.iterdir()]
    assert len(sockets) == 1
    assert not [
        path for path in (gpu_node.cluster.plugins_dir / DRIVER).iterdir() if old["metadata"]["uid"] in path.name
    ]


def test_reboot_prepares_again_for_the_pods_that_come_back(gpu_node: GpuNode, start: Start) -> None:
    pod = start("rebooted")
    devices = gpu_node.devices_of(pod, CONTAINER)
    spec = gpu_node.cdi_specs()

    gpu_node.cluster.stop_kubelet(signal.SIGKILL)
    containers.kill_all(gpu_node.cluster.directory)
    for path in gpu_node.cluster.cdi_dir.iterdir():  # /var/run is empty after a reboot
        path.unlink()
    gpu_node.new_boot_id("22222222-2222-4222-8222-222222222222")
    gpu_node.cluster.start_kubelet()

    gpu_node.wait_ready()
    gpu_node.cluster.wait("the Pod's container again", lambda: restarts(gpu_node, "rebooted") == 1)
    again = gpu_node.cluster.wait_pod("rebooted", ready=True)
    check(gpu_node, again)
    assert gpu_node.devices_of(again, CONTAINER) == devices
    assert gpu_node.cdi_specs() == spec


def restarts(node: GpuNode, pod: str) -> int:
    statuses = node.cluster.pod(pod)["status"].get("containerStatuses", [{}])
    return int(statuses[0].get("restartCount", 0)) if "running" in statuses[0].get("state", {}) else -1


def test_bad_configuration_of_one_claim_is_told_on_its_pod_and_hurts_nobody_else(
    gpu_node: GpuNode, start: Start
) -> None:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "NoSuchConfig"}
    gpu_node.cluster.apply(gpu_pod("misconfigured", parameters=parameters))
    try:

        def told() -> list[str]:
            events = gpu_node.cluster.events("default", "misconfigured")
            return [event for event in events if event.startswith("FailedPrepareDevices:")]

        gpu_node.cluster.wait("the driver's event", lambda: told() != [])
        assert "NoSuchConfig" in told()[0]
        start("well-configured")
    finally:
        gpu_node.cluster.delete_pod("misconfigured")
        gpu_node.cluster.kubectl("delete", "resourceclaimtemplate", "misconfigured")


def test_gpu_that_is_taken_out_is_not_offered_until_it_is_back(gpu_node: GpuNode, start: Start) -> None:
    all_devices = gpu_node.devices()

    gpu_node.take_out(7)
    gpu_node.cluster.wait("gpu-7 to be gone", lambda: "gpu-7" not in gpu_node.devices())
    assert gpu_node.devices() == {name: device for name, device in all_devices.items() if name != "gpu-7"}
    start("without-gpu-7")

    gpu_node.put_back(7)
    gpu_node.cluster.wait("gpu-7 to be back", lambda: gpu_node.devices() == all_devices)


def test_driver_upgrade_reaches_slices_and_new_containers_without_a_restart(gpu_node: GpuNode, start: Start) -> None:
    start("before-upgrade")
    pid = gpu_node.pid()

    gpu_node.upgrade_driver("585.10.02")

    def published() -> set[str]:
        return {device["attributes"]["driverVersion"]["version"] for device in gpu_node.devices().values()}

    gpu_node.cluster.wait("the new version in the slices", lambda: published() == {"585.10.2"})
    start("after-upgrade")  # its mounts are checked to be those of the new version
    assert gpu_node.pid() == pid
    gpu_node.cluster.delete_pod("before-upgrade")


def test_hook_on_the_host_is_the_one_of_the_image_and_runs_there(gpu_node: GpuNode) -> None:
    hook = gpu_node.cluster.plugins_dir / DRIVER / "nvidia-cdi-hook"

    said = subprocess.run([hook, "--version"], capture_output=True, text=True, check=True, env={}).stdout

    assert "1.20.2" in said
    assert not list(Path(hook.parent).glob(".nvidia-cdi-hook*"))
