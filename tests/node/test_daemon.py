"""The daemon as a whole, in this process: real sockets, files and NVML binding; stand-ins for hardware, API server,
kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dra_driver.devices.gpu import DRIVER
from dra_driver.errors import DraDriverError, EnvironmentFault, InputError
from dra_driver.kube.standin import ApiServerStandIn
from dra_driver.kubelet.pb.grpc_health_v1_pb2 import HealthCheckRequest, HealthCheckResponse
from dra_driver.kubelet.standin import KubeletStandIn
from dra_driver.kubelet.wire import new_channel
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from dra_driver.node.configuration import NodeConfiguration
from dra_driver.node.daemon import Daemon
from tests.gpu_machine import GpuMachine

NODE = "node-a"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
EVENTS = "/api/v1/namespaces/default/events"
PATIENCE = 30.0  # generous: nothing is judged by time, this only ends a test that would never end


@dataclass(slots=True)
class Node:
    """A running daemon with everything around it."""

    folder: Path
    api: ApiServerStandIn
    kubelet: KubeletStandIn
    daemon: Daemon
    configuration: NodeConfiguration

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.02)

    def devices(self) -> list[str]:
        return [d["name"] for item in self.api.items(SLICES) for d in item["spec"].get("devices") or ()]

    def specs(self) -> list[Path]:
        return sorted((self.folder / "cdi").glob("*.json"))

    def records(self) -> list[Path]:
        return sorted((self.folder / "plugins" / DRIVER / "claims").glob("*.json"))

    async def claim(self, name: str, *devices: str, **more: Any) -> ClaimRef:
        """An allocated claim, reserved for a Pod of its name."""
        results = [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device} for device in devices]
        allocation = {"devices": {"results": results, **more}}
        reserved = [{"resource": "pods", "name": f"pod-of-{name}", "uid": f"uid-of-pod-of-{name}"}]
        stored = await self.api.add(
            CLAIMS,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}},
                "status": {"allocation": allocation, "reservedFor": reserved},
            },
        )
        return ClaimRef("default", name, stored["metadata"]["uid"])

    async def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...] | str:
        return (await self.kubelet.prepare(DRIVER, [ref]))[ref.uid]

    async def unprepare(self, ref: ClaimRef) -> str:
        return (await self.kubelet.unprepare(DRIVER, [ref]))[ref.uid]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[GpuMachine]:
    made = GpuMachine.create(tmp_path / "machine", "dgx-h100", count=2)
    yield made
    made.standin.close()


def configure(folder: Path, url: str, machine: GpuMachine | None, **changes: Any) -> NodeConfiguration:
    kubeconfig = folder / "kubeconfig"
    context = {"context": {"cluster": "c", "user": "u"}, "name": "c"}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [context],
        "current-context": "c",
    }
    kubeconfig.write_text(json.dumps(config))
    values: dict[str, Any] = {
        "node_name": NODE,
        "kubeconfig": str(kubeconfig),
        "cdi_dir": str(folder / "cdi"),
        "kubelet_plugins_dir": str(folder / "plugins"),
        "kubelet_registry_dir": str(folder / "registry"),
        "pod_resources_socket": str(folder / "pod-resources.sock"),
        "http_address": "",
        "stop_grace_seconds": 1.0,
        "bundled_cdi_hook": "",
    }
    if machine is not None:
        values |= {"driver_root": str(machine.root.path), "sys_root": str(machine.root.sysfs)}
        values["proc_root"] = str(machine.standin.proc)
    return NodeConfiguration(**(values | changes))


@contextlib.asynccontextmanager
async def running(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine | None, **changes: Any
) -> AsyncIterator[Node]:
    if not api.items("/api/v1/nodes"):
        await api.add("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    configuration = configure(folder, api.url, machine, **changes)
    stop = asyncio.Event()
    async with KubeletStandIn(folder / "registry") as kubelet:
        daemon = Daemon(configuration)
        task = asyncio.create_task(daemon.run(stop))
        try:
            await kubelet.registered(DRIVER, PATIENCE)
            node = Node(folder, api, kubelet, daemon, configuration)
            await node.until(lambda: node.api.items(SLICES))
            yield node
        finally:
            stop.set()
            await task


@pytest.fixture
async def api() -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn() as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since socket paths may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
async def node(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Node]:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    async with running(api, folder, machine) as started:
        yield started


async def test_one_gpu_to_one_claim(node: Node, machine: GpuMachine) -> None:
    assert node.devices() == ["gpu-0", "gpu-1"]
    ref = await node.claim("train", "gpu-1")
    answer = await node.prepare(ref)
    cdi_id = f"k8s.gpu.nvidia.com/claim={ref.uid}-gpu-1"
    assert answer == (PreparedDevice(("gpu",), NODE, "gpu-1", (cdi_id,)),)
    (file,) = node.specs()
    spec = json.loads(file.read_text())
    assert spec["kind"] == "k8s.gpu.nvidia.com/claim"
    (device,) = spec["devices"]
    assert device["name"] == f"{ref.uid}-gpu-1"
    paths = [entry["path"] for entry in device["containerEdits"]["deviceNodes"]]
    assert "/dev/nvidia1" in paths
    assert "/dev/nvidia0" not in file.read_text()
    common = [entry["path"] for entry in spec["containerEdits"]["deviceNodes"]]
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= set(common)
    assert [path.name for path in node.records()] == [f"{ref.uid}.json"]

    assert await node.prepare(ref) == answer
    assert await node.unprepare(ref) == ""
    assert (node.specs(), node.records()) == ([], [])
    assert await node.unprepare(ref) == ""


async def test_published_attributes_come_from_nvml_and_sysfs(node: Node, machine: GpuMachine) -> None:
    (item,) = node.api.items(SLICES)
    assert item["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert item["spec"]["nodeName"] == NODE
    attributes = item["spec"]["devices"][0]["attributes"]
    gpu = machine.standin.machine.gpus[0]
    assert attributes["uuid"] == {"string": gpu.uuid}
    assert attributes["resource.kubernetes.io/pciBusID"] == {"string": gpu.pci_bus_id}
    assert attributes["resource.kubernetes.io/pcieRoot"] == {"string": gpu.pcie_root}
    assert attributes["resource.kubernetes.io/numaNode"] == {"int": gpu.numa_node}
    assert item["spec"]["devices"][0]["capacity"]["memory"]["value"] == "81559Mi"


async def test_a_lost_gpu_costs_one_gpu(node: Node, machine: GpuMachine) -> None:
    ref = await node.claim("late", "gpu-0")
    machine.standin.lose(0)
    node.daemon.discovery.request()
    await node.until(lambda: node.devices() == ["gpu-1"])
    refused = await node.prepare(ref)
    assert isinstance(refused, str)
    assert "default/late" in refused
    assert "gpu-0" in refused
    assert "lost" in refused
    machine.standin.restore(0)
    node.daemon.discovery.request()
    await node.until(lambda: node.devices() == ["gpu-0", "gpu-1"])
    assert not isinstance(await node.prepare(ref), str)


async def test_without_the_nvidia_driver_claims_are_unprepared_and_the_pool_is_empty(
    node: Node, machine: GpuMachine
) -> None:
    ref = await node.claim("train", "gpu-0")
    assert not isinstance(await node.prepare(ref), str)
    machine.standin.unload()
    node.daemon.discovery.request()
    await node.until(lambda: node.devices() == [])
    assert len(node.api.items(SLICES)) == 1
    assert await node.unprepare(ref) == ""
    assert (node.specs(), node.records()) == ([], [])
    machine.standin.load()
    node.daemon.discovery.request()
    await node.until(lambda: node.devices() == ["gpu-0", "gpu-1"])


async def test_a_driver_that_is_installed_later_is_found(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    machine.root.remove_driver_files()
    machine.standin.unload()
    async with running(api, folder, machine) as node:
        assert node.devices() == []
        machine.root.add_driver_files()
        machine.standin.install(machine.root.path)
        machine.standin.load()
        node.daemon.discovery.request()
        await node.until(lambda: node.devices() == ["gpu-0", "gpu-1"])
        assert not isinstance(await node.prepare(await node.claim("train", "gpu-0")), str)


async def test_a_gpu_that_is_plugged_in_is_found(node: Node, machine: GpuMachine) -> None:
    machine.standin.detach(1)
    node.daemon.discovery.request()
    await node.until(lambda: node.devices() == ["gpu-0"])
    machine.standin.attach(1)
    node.daemon.discovery.request()
    await node.until(lambda: node.devices() == ["gpu-0", "gpu-1"])


async def test_a_reboot_makes_records_void(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    async with running(api, folder, machine) as before:
        ref = await before.claim("train", "gpu-0")
        answer = await before.prepare(ref)
        for spec in before.specs():
            spec.unlink()  # /var/run is empty after a reboot
    (machine.standin.proc / "sys/kernel/random/boot_id").write_text("another-boot\n")
    async with running(api, folder, machine) as after:
        assert await after.prepare(ref) == answer
        assert len(after.specs()) == 1
        assert await after.unprepare(ref) == ""


async def test_a_driver_upgrade_is_seen_without_a_restart(node: Node, machine: GpuMachine) -> None:
    version = "590.44.01"
    machine.upgrade(version)
    node.daemon.discovery.request()

    def published() -> str:
        (item,) = node.api.items(SLICES)
        found: str = item["spec"]["devices"][0]["attributes"]["driverVersion"]["version"]
        return found

    await node.until(lambda: node.devices() and published() == "590.44.1")
    ref = await node.claim("train", "gpu-0")
    assert not isinstance(await node.prepare(ref), str)
    assert f"libcuda.so.{version}" in node.specs()[0].read_text()


async def test_a_missing_device_node_is_told_and_nothing_is_answered_without_it(
    node: Node, machine: GpuMachine
) -> None:
    machine.root.remove_node("/dev/nvidia0")
    ref = await node.claim("train", "gpu-0")
    refused = await node.prepare(ref)
    assert isinstance(refused, str)
    assert "/dev/nvidia0" in refused
    assert node.records() == []
    event = await _event(node, "pod-of-train")
    assert event["reason"] == "FailedPrepareDevices"
    assert event["type"] == "Warning"
    assert "/dev/nvidia0" in event["message"]
    assert event["involvedObject"] | {"uid": "uid-of-pod-of-train"} == event["involvedObject"]


async def test_a_claim_that_cannot_be_read_has_its_event_on_the_claim(node: Node) -> None:
    ref = ClaimRef("default", "gone", "uid-of-gone")
    refused = await node.prepare(ref)
    assert isinstance(refused, str)
    assert "default/gone" in refused
    event = await _event(node, "gone")
    assert event["involvedObject"]["kind"] == "ResourceClaim"


async def _event(node: Node, name: str) -> dict[str, Any]:
    def found() -> list[dict[str, Any]]:
        return [event for event in node.api.items(EVENTS) if event["involvedObject"]["name"] == name]

    await node.until(found)
    return found()[0]


async def test_one_device_is_never_given_to_two_claims(node: Node) -> None:
    first, second = await node.claim("first", "gpu-0"), await node.claim("second", "gpu-0")
    await node.api.add(
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "pod-of-first", "namespace": "default", "uid": "uid-of-pod-of-first"}},
    )
    assert not isinstance(await node.prepare(first), str)
    refused = await node.prepare(second)
    assert isinstance(refused, str)
    assert "default/first" in refused
    assert "default/second" in refused
    assert first.uid in refused


async def test_a_restart_answers_from_the_verified_record(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    async with running(api, folder, machine) as before:
        ref = await before.claim("train", "gpu-0")
        answer = await before.prepare(ref)
        slices = [item["metadata"]["name"] for item in api.items(SLICES)]
    assert [item["metadata"]["name"] for item in api.items(SLICES)] == slices, "a stop leaves the slices"
    api.objects.pop(f"{CLAIMS}/train")
    async with running(api, folder, machine) as after:
        assert await after.prepare(ref) == answer
        assert after.specs() != []


async def test_uninstall_removes_the_slices(api: ApiServerStandIn, folder: Path) -> None:
    async with running(api, folder, None, inventory="profile:l4", uninstall=True):
        assert api.items(SLICES)
    assert api.items(SLICES) == []


async def test_a_described_node_says_so_in_the_container(api: ApiServerStandIn, folder: Path) -> None:
    async with running(api, folder, None, inventory="profile:gb200-nvl72") as node:
        assert len(node.devices()) == 4
        ref = await node.claim("train", "gpu-2")
        assert not isinstance(await node.prepare(ref), str)
        spec = json.loads(node.specs()[0].read_text())
        assert "deviceNodes" not in json.dumps(spec)
        assert "DRA_DRIVER_DESCRIBED_MACHINE=profile:gb200-nvl72" in spec["containerEdits"]["env"]
        assert any(
            entry.startswith("DRA_DRIVER_DESCRIBED_GPU_2=GPU-") for entry in spec["devices"][0]["containerEdits"]["env"]
        )


async def test_a_corrupt_record_is_put_aside_and_the_claim_prepared_anew(api: ApiServerStandIn, folder: Path) -> None:
    async with running(api, folder, None, inventory="profile:l4") as before:
        ref = await before.claim("train", "gpu-0")
        answer = await before.prepare(ref)
        (record,) = before.records()
    record.write_bytes(record.read_bytes()[:-7] + b"garbage")
    async with running(api, folder, None, inventory="profile:l4") as after:
        assert (
            after.daemon.metrics.registry.get_sample_value("dra_driver_records_quarantined_total", {"driver": DRIVER})
            == 1.0
        )
        assert await after.prepare(ref) == answer
        kept = sorted((folder / "plugins" / DRIVER / "quarantine").iterdir())
        assert [path.name.startswith(record.name) for path in kept] == [True, True]
        assert kept[0].read_bytes().endswith(b"garbage")
        assert kept[1].suffix == ".reason"


async def test_metrics_of_a_node(node: Node) -> None:
    ref = await node.claim("train", "gpu-0")
    await node.prepare(ref)
    await node.prepare(ref)
    value = node.daemon.metrics.registry.get_sample_value
    labels = {"driver": DRIVER}
    assert value("dra_driver_prepared_devices", labels) == 1.0
    assert value("dra_driver_devices", {**labels, "state": "published"}) == 2.0
    assert value("dra_driver_registered", labels) == 1.0
    assert (value("dra_driver_publish_success_timestamp_seconds", labels) or 0) > 1.6e9
    assert value("dra_driver_claims_total", {**labels, "operation": "prepare", "outcome": "ok"}) == 1.0
    assert value("dra_driver_claims_total", {**labels, "operation": "prepare", "outcome": "recorded"}) == 1.0
    assert node.daemon.unmet() == {}


async def test_grpc_health_tells_of_life_and_readiness(
    api: ApiServerStandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{unused_port()}"
    async with (
        running(api, folder, None, inventory="profile:l4", grpc_health_address=address) as node,
        new_channel(address) as channel,
    ):
        ask = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )

        async def statuses() -> list[int]:
            return [(await ask(HealthCheckRequest(service=name))).status for name in ("", "liveness", "readiness")]

        serving, not_serving = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
        await node.until(lambda: not node.daemon.unmet())
        assert await statuses() == [serving, serving, serving]
        monkeypatch.setattr(node.daemon.discovery, "unmet", lambda: "NVML does not answer")
        assert await statuses() == [serving, serving, not_serving]


async def test_grpc_health_that_can_not_be_served_ends_the_start(api: ApiServerStandIn, folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = "127.0.0.1:{1}".format(*other.getsockname())
        daemon = Daemon(configure(folder, api.url, None, inventory="profile:l4", grpc_health_address=address))
        with pytest.raises(EnvironmentFault, match=address):
            await daemon.run(asyncio.Event())


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        pytest.param({"inventory": "profile:dgx-h1000"}, InputError, "did you mean dgx-h100", id="profile"),
        pytest.param({"kubeconfig": "/nonexistent/config"}, InputError, "/nonexistent/config", id="kubeconfig"),
        pytest.param({"proc_root": "/nonexistent"}, EnvironmentFault, "/nonexistent", id="proc"),
    ],
)
async def test_what_must_be_there_at_the_start(
    folder: Path, changes: dict[str, Any], kind: type[DraDriverError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        Daemon(configure(folder, "http://127.0.0.1:1", None, **({"inventory": "profile:l4"} | changes)))


async def test_a_wrong_driver_root_is_a_state_with_a_reason(api: ApiServerStandIn, folder: Path) -> None:
    async with running(api, folder, None, driver_root=str(folder / "nothing")) as node:
        assert node.devices() == []
        assert len(node.api.items(SLICES)) == 1
        refused = await node.prepare(await node.claim("train", "gpu-0"))
        assert isinstance(refused, str)
        assert str(folder / "nothing") in refused


async def test_a_cdi_folder_that_is_a_file_is_told_by_every_claim_and_the_daemon_lives(
    api: ApiServerStandIn, folder: Path
) -> None:
    (folder / "cdi").write_text("not a folder")
    async with running(api, folder, None, inventory="profile:l4") as node:
        ref = await node.claim("train", "gpu-0")
        refused = await node.prepare(ref)
        assert isinstance(refused, str)
        assert str(folder / "cdi") in refused
        (folder / "cdi").unlink()
        (folder / "cdi").mkdir()
        assert not isinstance(await node.prepare(ref), str)


async def test_a_plugin_folder_that_can_not_be_had_ends_the_daemon_with_one_error(
    api: ApiServerStandIn, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "plugins").write_text("not a folder")
    await api.add("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    with pytest.raises(EnvironmentFault, match=str(folder / "plugins")):
        await Daemon(configure(folder, api.url, None, inventory="profile:l4")).run(asyncio.Event())
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.exc_info for record in errors] == [None] * len(errors), "an operator needs no traceback"


async def test_readiness_says_why_the_api_server_can_not_be_reached(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_driver.kube.client._MAX_TRIES", 1)  # the cause is told after ten, six seconds later
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens here
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        daemon = Daemon(configure(folder, url, None, inventory="profile:l4"))
        stop = asyncio.Event()
        task = asyncio.create_task(daemon.run(stop))
        async with asyncio.timeout(PATIENCE):
            while url not in daemon.unmet().get(f"{DRIVER} slices", ""):
                await asyncio.sleep(0.05)
        stop.set()
        await task


async def test_readiness_says_that_the_cdi_folder_can_not_be_used(api: ApiServerStandIn, folder: Path) -> None:
    (folder / "cdi").write_text("not a folder")
    async with running(api, folder, None, inventory="profile:l4") as node:
        assert str(folder / "cdi") in node.daemon.unmet()["CDI folder"]
        (folder / "cdi").unlink()
        (folder / "cdi").mkdir()
        assert node.daemon.unmet() == {}


async def test_a_claim_waits_for_the_first_look_and_its_unprepare_does_not(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    hanging = machine.standin.delay("nvmlDeviceGetCount", None, 3600.0)
    await api.add("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    stop = asyncio.Event()
    async with KubeletStandIn(folder / "registry") as kubelet:
        daemon = Daemon(configure(folder, api.url, machine))
        task = asyncio.create_task(daemon.run(stop))
        try:
            await kubelet.registered(DRIVER, PATIENCE)
            node = Node(folder, api, kubelet, daemon, daemon.configuration)
            ref, other = await node.claim("early", "gpu-0"), await node.claim("other", "gpu-1")
            answer = asyncio.create_task(node.prepare(ref))
            assert await node.unprepare(other) == ""
            assert not answer.done()
            machine.standin.remove(hanging)
            devices = await answer
            assert not isinstance(devices, str), devices
            assert [device.device for device in devices] == ["gpu-0"]
        finally:
            machine.standin.remove(hanging)
            stop.set()
            await task


async def test_a_stop_does_not_wait_for_a_first_look_that_hangs(
    api: ApiServerStandIn, folder: Path, machine: GpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    hanging = machine.standin.delay("nvmlDeviceGetCount", None, 3600.0)
    stop = asyncio.Event()
    async with KubeletStandIn(folder / "registry") as kubelet:
        daemon = Daemon(configure(folder, api.url, machine))
        task = asyncio.create_task(daemon.run(stop))
        try:
            await kubelet.registered(DRIVER, PATIENCE)
            stop.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(task)
            assert daemon.discovery.devices is None
        finally:
            machine.standin.remove(hanging)
            await task


def test_the_soft_limit_of_open_files_is_raised() -> None:
    program = (
        "import resource as r; from dra_driver.node import daemon;"
        " r.setrlimit(r.RLIMIT_NOFILE, (256, 512)); daemon._allow_many_files(); print(r.getrlimit(r.RLIMIT_NOFILE));"
        " daemon._allow_many_files(); print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(512, 512)"] * 2
