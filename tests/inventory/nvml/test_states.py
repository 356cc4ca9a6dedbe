"""A driver that does not answer is a state with a reason and a next step, never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.hardware import DriverState
from dra_driver.inventory.nvml import NvmlInventory
from tests.inventory.conftest import MakeInventory, MakeStandin
from tests.standin.kernel import add_pci_device


def test_no_library(tmp_path: Path) -> None:
    machine = NvmlInventory(DriverRoot(tmp_path), tmp_path, tmp_path).discover()
    assert machine.state is DriverState.NO_LIBRARY
    assert machine.gpus == ()
    assert str(tmp_path) in machine.reason
    assert "--driver-root" in machine.hint


def test_damaged_library(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").write_bytes(b"not a library")
    machine = NvmlInventory(DriverRoot(tmp_path), tmp_path, tmp_path).discover()
    assert machine.state is DriverState.NO_LIBRARY
    assert str(folder / "libnvidia-ml.so.1") in machine.reason
    assert "reinstall the driver" in machine.hint


def test_library_that_is_not_nvml(tmp_path: Path, make_standin: MakeStandin) -> None:
    """Every symbol is missing: the first call says so."""
    import ctypes.util
    import shutil

    name = ctypes.util.find_library("m")
    assert name is not None
    source = next(
        folder / name
        for folder in (Path("/lib/x86_64-linux-gnu"), Path("/lib/aarch64-linux-gnu"), Path("/lib64"), Path("/usr/lib"))
        if (folder / name).exists()
    )
    folder = tmp_path / "root/usr/lib64"
    folder.mkdir(parents=True)
    shutil.copy(source, folder / "libnvidia-ml.so.1")
    machine = NvmlInventory(DriverRoot(tmp_path / "root"), tmp_path, tmp_path).discover()
    assert machine.state is DriverState.FAILED
    assert "nvmlInitWithFlags" in machine.reason


def test_driver_not_loaded(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("t4")
    standin.unload()
    machine = make_inventory(standin).discover()
    assert machine.state is DriverState.NOT_LOADED
    assert "Driver Not Loaded" in machine.reason
    assert "modprobe nvidia" in machine.hint


def test_version_mismatch_names_the_loaded_module(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("t4")
    standin.set_library_version("590.44.01")
    machine = make_inventory(standin).discover()
    assert machine.state is DriverState.VERSION_MISMATCH
    assert "the loaded kernel module is 580.95.05" in machine.reason
    assert "reboot the node" in machine.hint


@pytest.mark.parametrize(
    ("error", "state", "hint"),
    [
        ("NO_PERMISSION", DriverState.NO_PERMISSION, "/dev/nvidiactl"),
        ("OPERATING_SYSTEM", DriverState.NO_PERMISSION, "device cgroup"),
        ("LIB_RM_VERSION_MISMATCH", DriverState.VERSION_MISMATCH, "reboot"),
        ("DRIVER_NOT_LOADED", DriverState.NOT_LOADED, "modprobe"),
        ("UNKNOWN", DriverState.FAILED, ""),
        ("MEMORY", DriverState.FAILED, ""),
        ("GPU_IS_LOST", DriverState.FAILED, "XID 79"),
    ],
)
def test_init_fails(
    make_standin: MakeStandin, make_inventory: MakeInventory, error: str, state: DriverState, hint: str
) -> None:
    standin = make_standin("t4")
    fault = standin.fault("nvmlInitWithFlags", error=error)
    inventory = make_inventory(standin)
    machine = inventory.discover()
    assert machine.state is state
    assert "nvmlInitWithFlags" in machine.reason
    assert hint in machine.hint
    standin.remove(fault)
    assert inventory.discover().gpus == standin.machine.gpus


def test_node_without_gpus(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("t4")
    standin.set_count(0)
    machine = make_inventory(standin).discover()
    assert machine.state is DriverState.READY
    assert machine.gpus == ()
    assert machine.reason == "driver 580.95.05 lists no GPU and the PCI bus has none"


def test_gpus_that_the_driver_does_not_drive_are_named(
    make_standin: MakeStandin, make_inventory: MakeInventory
) -> None:
    standin = make_standin("t4")
    standin.set_count(0)
    add_pci_device(standin.sysfs, "0000:3b:00.0", root="pci0000:3a")
    machine = make_inventory(standin).discover()
    assert machine.reason == "driver 580.95.05 lists no GPU, but the PCI bus has 0000:3b:00.0"
    assert "vfio-pci" in machine.hint


def test_all_gpus_unusable(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("t4")
    standin.fault("nvmlDeviceGetMinorNumber", error="NOT_SUPPORTED")
    machine = make_inventory(standin).discover()
    assert machine.state is DriverState.READY
    assert machine.reason == "none of the 4 GPUs of this node can be used"
    assert [problem.subject for problem in machine.problems] == [f"GPU index {index}" for index in range(4)]


def test_shutdown_that_fails_is_survived(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("t4")
    inventory = make_inventory(standin)
    inventory.discover()
    fault = standin.fault("nvmlShutdown", error="UNKNOWN")
    inventory.close()
    standin.remove(fault)
    assert inventory.discover().gpus == standin.machine.gpus
