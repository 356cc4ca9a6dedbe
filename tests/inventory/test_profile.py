"""Described machines: the data are sound, and a machine is the same at every look and differs between nodes."""

from __future__ import annotations

import uuid
from itertools import pairwise

import pynvml
import pytest

from dra_driver.errors import InputError
from dra_driver.inventory import codes, pci, profile
from dra_driver.inventory.gpu_models import models
from dra_driver.inventory.hardware import DriverState

NAMES = profile.names()


def test_the_machines_people_ask_for_are_there() -> None:
    wanted = {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "gb300-nvl72", "l40s", "t4", "a10", "l4"}
    assert wanted | {"a100-pcie", "gh200", "hgx-h100", "rtx-pro-6000"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_machine_is_sound(name: str) -> None:
    machine = profile.DescribedInventory(name).discover()
    assert machine.state is DriverState.READY
    assert machine.source == f"profile:{name}"
    assert machine.described
    assert machine.gpus
    assert [gpu.index for gpu in machine.gpus] == [gpu.minor for gpu in machine.gpus] == list(range(len(machine.gpus)))
    for gpu in machine.gpus:
        assert gpu.pci_bus_id == pci.normalise_bus_id(gpu.pci_bus_id or "")
        assert gpu.pcie_root is not None
        assert gpu.pcie_root.startswith(f"pci{gpu.pci_bus_id.split(':')[0]}:")
        assert gpu.brand != codes.UNKNOWN
        assert gpu.architecture != codes.UNKNOWN
        assert uuid.UUID(gpu.uuid.removeprefix("GPU-"))
        assert gpu.addressing_mode in codes.ADDRESSING_MODES.values()
        assert (gpu.nvlink_count is None) == (gpu.nvlink_version is None)
    for unique in ("uuid", "serial", "pci_bus_id"):
        assert len({getattr(gpu, unique) for gpu in machine.gpus}) == len(machine.gpus)
    # NVML numbers GPUs in the order of their addresses
    assert all(left < right for left, right in pairwise(gpu.pci_bus_id or "" for gpu in machine.gpus))


@pytest.mark.parametrize("layout", profile.layouts().values(), ids=lambda layout: layout.name)
def test_layout_uses_no_more_links_than_the_model_has(layout: profile.MachineLayout) -> None:
    assert (layout.nvlinks or 0) <= (layout.model.nvlink.links if layout.model.nvlink else 0)
    assert layout.fabric is None or layout.nvlinks


def test_dgx_h100_has_the_values_of_the_real_machine() -> None:
    gpu = profile.DescribedInventory("dgx-h100").discover().gpus[4]
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert gpu.memory_bytes == 81559 * 2**20
    assert gpu.compute_capability == (9, 0)
    assert (gpu.brand, gpu.architecture) == ("Nvidia", "Hopper")
    assert (gpu.nvlink_count, gpu.nvlink_version) == (18, "4.0")
    assert (gpu.pci_bus_id, gpu.numa_node) == ("0000:9d:00.0", 1)
    assert (gpu.power_limit_watts, gpu.mig_enabled, gpu.ecc_enabled) == (700, False, True)
    assert gpu.fabric is not None
    assert (gpu.fabric.state, gpu.fabric.cluster_uuid) == ("completed", None)


def test_a_gb200_rack_is_one_nvlink_domain() -> None:
    trays = [profile.DescribedInventory("gb200-nvl72", node_name=node).discover() for node in ("tray-1", "tray-2")]
    fabrics = {gpu.fabric for tray in trays for gpu in tray.gpus}
    assert len(fabrics) == 1
    fabric = fabrics.pop()
    assert fabric is not None
    assert fabric.cluster_uuid is not None
    assert fabric.clique_id == 32766
    other = profile.DescribedInventory("gb200-nvl72", node_name="tray-3", rack="rack-1").discover().gpus[0].fabric
    assert other is not None
    assert other.cluster_uuid != fabric.cluster_uuid


def test_a_node_keeps_its_gpus_and_two_nodes_have_different_ones() -> None:
    first = profile.DescribedInventory("l40s", node_name="node-a").discover()
    again = profile.DescribedInventory("l40s", node_name="node-a").discover()
    other = profile.DescribedInventory("l40s", node_name="node-b").discover()
    assert first == again
    assert not {gpu.uuid for gpu in first.gpus} & {gpu.uuid for gpu in other.gpus}
    assert not {gpu.serial for gpu in first.gpus} & {gpu.serial for gpu in other.gpus}


def test_count_takes_the_first_gpus() -> None:
    whole = profile.DescribedInventory("dgx-h100").discover()
    assert profile.DescribedInventory("dgx-h100:gpus=3").discover().gpus == whole.gpus[:3]
    assert profile.DescribedInventory("profile:dgx-h100:gpus=8").discover() == whole


@pytest.mark.parametrize("count", ["0", "9", "-1", "many", "", "1.5", "٣"])
def test_impossible_count_names_the_limit(count: str) -> None:
    with pytest.raises(InputError, match="between 1 and 8"):
        profile.DescribedInventory(f"dgx-h100:gpus={count}")


@pytest.mark.parametrize("option", ["3", "mig=all-1g.5gb", "gpu=3"])
def test_unknown_option_is_named(option: str) -> None:
    with pytest.raises(InputError, match=f"unknown option '{option}'.*dgx-h100:gpus=N"):
        profile.DescribedInventory(f"dgx-h100:{option}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("dgx-h10", "did you mean dgx-h100?"), ("L40S", "did you mean l40s?"), ("quantum", "the profiles are a10, ")],
)
def test_unknown_profile_names_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        profile.DescribedInventory(text)
    assert caught.value.message == f"there is no profile {text!r}"
    assert (caught.value.hint or "").startswith(hint)


def test_summary_for_a_listing() -> None:
    summary = profile.describe("dgx-a100")
    assert (summary.gpu_count, summary.product_name) == (8, "NVIDIA A100-SXM4-40GB")
    assert (summary.nvlink, summary.mig_capable) == ("12 x NVLink 3.0", True)
    assert (summary.numa_nodes, summary.pcie_roots, summary.multi_node_nvlink) == (4, 4, False)
    assert profile.describe("gb300-nvl72").multi_node_nvlink
    assert profile.describe("t4:gpus=1").gpu_count == 1
    assert profile.describe("dgx-spark").memory_bytes is None
    assert profile.describe("vm-a100").numa_nodes == 0


@pytest.mark.parametrize("model", models().values(), ids=lambda model: model.key)
def test_mig_profiles_are_sound(model: object) -> None:
    from dra_driver.inventory.gpu_models import GpuModel

    assert isinstance(model, GpuModel)
    if model.mig is None:
        return
    mig = model.mig
    assert len({entry.id for entry in mig.profiles}) == len(mig.profiles)
    assert len({entry.index for entry in mig.profiles}) == len(mig.profiles)
    for entry in mig.profiles:
        assert entry.max_count * entry.slices <= mig.slices
        assert all(start + entry.placement_size <= mig.memory_slices for start in entry.placement_starts)
        assert len(entry.placement_starts) >= entry.max_count
        assert (entry.memory_mib << 20) < (model.memory_bytes or 0)
        assert entry.multiprocessors <= model.multiprocessors


def test_code_tables_agree_with_pynvml() -> None:
    brands = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_BRAND_")}
    assert set(codes.BRANDS) <= set(brands)
    assert codes.BRANDS[pynvml.NVML_BRAND_NVIDIA] == "Nvidia"
    assert codes.BRANDS[pynvml.NVML_BRAND_QUADRO_RTX] == "QuadroRTX"
    assert codes.BRANDS[pynvml.NVML_BRAND_NVIDIA_VWS] == "NvidiaVWS"
    assert codes.ARCHITECTURES[pynvml.NVML_DEVICE_ARCH_ADA] == "Ada Lovelace"
    assert codes.ARCHITECTURES[pynvml.NVML_DEVICE_ARCH_BLACKWELL] == "Blackwell"
    assert codes.ARCHITECTURES[pynvml.NVML_DEVICE_ARCH_RUBIN] == "Rubin"
    assert codes.FABRIC_STATES[pynvml.NVML_GPU_FABRIC_STATE_COMPLETED] == "completed"
    assert [codes.NVLINK_VERSIONS[codes.nvlink_code(generation)] for generation in (2, 3, 4, 5)] == [
        "2.0",
        "3.0",
        "4.0",
        "5.0",
    ]
