"""The published device: NVIDIA's names and types exactly, new facts, nothing invented."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.devices.allocatable import allocatable_devices
from dra_driver.devices.gpu import device_minor, gpu_device
from dra_driver.inventory.hardware import DriverState, Fabric, Gpu, Machine, Problem
from dra_driver.model.resource import DeviceAttribute

CLUSTER = "8a3f9c1e-0000-4000-8000-000000000001"

H100 = Gpu(
    index=0,
    minor=3,
    uuid="GPU-11111111-2222-3333-4444-555555555555",
    name="NVIDIA H100 80GB HBM3",
    brand="Nvidia",
    architecture="Hopper",
    compute_capability=(9, 0),
    memory_bytes=85520809984,
    pci_bus_id="0000:1b:00.0",
    pcie_root="pci0000:17",
    numa_node=0,
    addressing_mode="HMM",
    serial="1650000000001",
    ecc_enabled=True,
    mig_enabled=False,
    nvlink_count=18,
    nvlink_version="4.0",
    power_limit_watts=700,
)
MACHINE = Machine(
    state=DriverState.READY, source="nvml", driver_version="580.65.06", cuda_driver_version=(13, 0), gpus=(H100,)
)


def attributes(gpu: Gpu, machine: Machine = MACHINE) -> dict[str, tuple[str, object]]:
    device, _ = gpu_device(gpu, machine)
    return {name: (attribute.kind, attribute.value) for name, attribute in device.attributes.items()}


def test_a_full_gpu_has_exactly_these_attributes() -> None:
    assert attributes(H100) == {
        "type": ("string", "gpu"),
        "uuid": ("string", "GPU-11111111-2222-3333-4444-555555555555"),
        "productName": ("string", "NVIDIA H100 80GB HBM3"),
        "brand": ("string", "Nvidia"),
        "architecture": ("string", "Hopper"),
        "cudaComputeCapability": ("version", "9.0.0"),
        "driverVersion": ("version", "580.65.6"),
        "cudaDriverVersion": ("version", "13.0.0"),
        "resource.kubernetes.io/pciBusID": ("string", "0000:1b:00.0"),
        "resource.kubernetes.io/pcieRoot": ("string", "pci0000:17"),
        "resource.kubernetes.io/numaNode": ("int", 0),
        "addressingMode": ("string", "HMM"),
        "index": ("int", 0),
        "serial": ("string", "1650000000001"),
        "eccEnabled": ("bool", True),
        "migMode": ("string", "disabled"),
        "powerLimitWatts": ("int", 700),
        "nvlinkCount": ("int", 18),
        "nvlinkVersion": ("version", "4.0.0"),
    }


def test_name_and_memory() -> None:
    device, problems = gpu_device(H100, MACHINE)
    assert device.name == "gpu-3"
    assert str(device.capacity["memory"].value) == "81559Mi"
    assert problems == ()


def test_unknown_facts_are_absent() -> None:
    bare = Gpu(index=0, minor=0, uuid="GPU-a", name="NVIDIA GB10")
    machine = Machine(state=DriverState.READY, source="nvml", gpus=(bare,))
    device, problems = gpu_device(bare, machine)
    assert set(device.attributes) == {"type", "uuid", "productName", "brand", "architecture", "index"}
    assert device.capacity == {}
    assert problems == ()


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        pytest.param(
            Fabric("completed", 0, CLUSTER, 7),
            {
                "fabricState": "completed",
                "clusterUUID": CLUSTER,
                "cliqueID": 7,
                "nvlinkDomain": f"{CLUSTER}.7",
            },
            id="registered",
        ),
        pytest.param(Fabric("in-progress", 0, CLUSTER, 7), {"fabricState": "in-progress"}, id="in-progress"),
        pytest.param(Fabric("completed", 999, CLUSTER, 7), {"fabricState": "completed"}, id="failed"),
        pytest.param(Fabric("completed", 0, None, 0), {"fabricState": "completed"}, id="single-node"),
        pytest.param(None, {}, id="no-fabric"),
    ],
)
def test_nvlink_domain_is_published_only_when_registered(fabric: Fabric | None, expected: dict[str, object]) -> None:
    found = attributes(replace(H100, fabric=fabric))
    names = ("fabricState", "clusterUUID", "cliqueID", "nvlinkDomain")
    assert {name: found[name][1] for name in names if name in found} == expected


def test_a_value_above_the_api_limit_is_left_out_and_told() -> None:
    device, problems = gpu_device(replace(H100, name="N" * 65), MACHINE)
    assert "productName" not in device.attributes
    assert [(problem.subject, problem.what) for problem in problems] == [("gpu-3", "productName")]
    limit, none = gpu_device(replace(H100, name="N" * 64), MACHINE)
    assert limit.attributes["productName"] == DeviceAttribute("string", "N" * 64)
    assert none == ()


def test_a_driver_version_that_is_none_is_told() -> None:
    device, problems = gpu_device(H100, replace(MACHINE, driver_version="unreleased"))
    assert "driverVersion" not in device.attributes
    assert [problem.what for problem in problems] == ["driverVersion"]


def test_devices_are_ordered_by_minor_number() -> None:
    gpus = tuple(
        replace(H100, index=index, minor=minor, uuid=f"GPU-{minor}") for index, minor in enumerate((5, 0, 11, 2))
    )
    devices = allocatable_devices(replace(MACHINE, gpus=gpus))
    assert list(devices.by_name) == ["gpu-0", "gpu-2", "gpu-5", "gpu-11"]
    assert [device.name for device in devices.slices()[0]] == ["gpu-0", "gpu-2", "gpu-5", "gpu-11"]


def test_a_gpu_in_mig_mode_is_not_given_away_whole() -> None:
    machine = replace(MACHINE, gpus=(replace(H100, mig_enabled=True), replace(H100, minor=4, uuid="GPU-b")))
    devices = allocatable_devices(machine)
    assert list(devices.by_name) == ["gpu-4"]
    assert "MIG mode is on" in devices.unavailable["gpu-3"]


def test_two_gpus_with_one_minor_number_cost_only_the_second() -> None:
    machine = replace(MACHINE, gpus=(H100, replace(H100, uuid="GPU-b", index=1)))
    devices = allocatable_devices(machine)
    assert devices.by_name["gpu-3"].gpu.uuid == H100.uuid
    assert "same minor number" in devices.unavailable["gpu-3"]


def test_a_lost_gpu_is_named_as_unavailable() -> None:
    machine = replace(MACHINE, problems=(Problem("gpu-5", "device", "GPU is lost"),))
    assert allocatable_devices(machine).unavailable == {"gpu-5": "GPU is lost"}


@pytest.mark.parametrize("state", [state for state in DriverState if state is not DriverState.READY])
def test_without_a_driver_the_pool_is_empty_but_exists(state: DriverState) -> None:
    devices = allocatable_devices(replace(MACHINE, state=state, reason="no"))
    assert devices.slices() == ((),)


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (64, [64]), (65, [64, 1]), (130, [64, 64, 2])])
def test_slices_are_cut_at_the_api_limit(count: int, sizes: list[int]) -> None:
    gpus = tuple(replace(H100, index=n, minor=n, uuid=f"GPU-{n}") for n in range(count))
    assert [len(devices) for devices in allocatable_devices(replace(MACHINE, gpus=gpus)).slices()] == sizes


@pytest.mark.parametrize(
    ("name", "minor"), [("gpu-0", 0), ("gpu-12", 12), ("gpu-1-mig-1g5gb-19-0", None), ("gpu-", None), ("xgpu-1", None)]
)
def test_device_minor(name: str, minor: int | None) -> None:
    assert device_minor(name) == minor
