"""The fake driver root is what it claims to be; other tests rely on it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.hardware import Gpu
from tests.driver_root import DriverRootBuilder, FakeGpu, Layout
from tests.driver_root.builder import may_make_nodes


@pytest.mark.parametrize("layout", Layout)
def test_the_inventory_finds_its_library(tmp_path: Path, layout: Layout) -> None:
    fake = DriverRootBuilder(tmp_path, layout=layout, real_nodes=False).build()
    root = DriverRoot(fake.path)
    library = root.libnvidia_ml()
    assert library is not None
    assert library.name == f"libnvidia-ml.so.{fake.driver_version}"
    assert root.dev_root == fake.path
    assert os.path.samefile(fake.path / layout.merged, fake.path / "usr" / layout.merged)


def test_links_lead_to_libraries(tmp_path: Path) -> None:
    fake = DriverRootBuilder(tmp_path, real_nodes=False).build()
    links = [path for path in fake.library_directory.rglob("*") if path.is_symlink()]
    assert len(links) > 30
    assert [path for path in links if not path.exists()] == []
    assert (fake.library_directory / "gbm/nvidia-drm_gbm.so").resolve().name == "libnvidia-allocator.so.580.95.05"


def test_a_given_nvml_library_is_installed(tmp_path: Path) -> None:
    (tmp_path / "standin.so").write_text("stand-in")
    fake = DriverRootBuilder(tmp_path / "driver", libnvidia_ml=tmp_path / "standin.so", real_nodes=False).build()
    assert (fake.library_directory / "libnvidia-ml.so.1").read_text() == "stand-in"


def test_sockets_are_sockets(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)  # longer than a socket path may be
    fake = DriverRootBuilder(deep, real_nodes=False).build()
    assert stat.S_ISSOCK((fake.path / "run/nvidia-persistenced/socket").stat().st_mode)


def test_gpus_in_sysfs_and_procfs(tmp_path: Path) -> None:
    fake = DriverRootBuilder(tmp_path, gpus=2, real_nodes=False).build()
    device = fake.sysfs / "bus/pci/devices" / fake.gpus[1].pci_bus_id
    assert device.is_symlink()
    assert device.resolve().parent.parent.name == "pci0000:11"
    assert (device / "numa_node").read_text() == "0\n"
    assert sorted(path.name for path in (device / "drm").iterdir()) == ["card1", "renderD129"]
    assert fake.gpus[1].uuid in (fake.proc / "driver/nvidia/gpus" / fake.gpus[1].pci_bus_id / "information").read_text()


def test_gpu_of_an_inventory_value() -> None:
    value = Gpu(
        index=0, minor=3, uuid="GPU-1", name="x", pci_bus_id="0000:1b:00.0", pcie_root="pci0000:15", numa_node=1
    )
    fake = FakeGpu.of(value)
    assert (fake.node, fake.card, fake.render, fake.root_port, fake.numa_node) == (
        "/dev/nvidia3",
        3,
        131,
        "pci0000:15",
        1,
    )
    assert FakeGpu.of(value, drm=False).card is None
    with pytest.raises(ValueError, match="gpu-3 has no PCI address"):
        FakeGpu.of(Gpu(index=0, minor=3, uuid="GPU-1", name="x"))


def test_upgrade_leaves_nothing_of_the_old_version(tmp_path: Path) -> None:
    fake = DriverRootBuilder(tmp_path, real_nodes=False).build()
    fake.upgrade("590.10.01")
    assert [path for path in fake.path.rglob("*") if "580.95.05" in path.name] == []
    assert (fake.library_directory / "libcuda.so.1").resolve().name == "libcuda.so.590.10.01"


NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dri/renderD128")


def described(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_mode, found.st_rdev, found.st_uid, found.st_gid


def test_stand_in_nodes_look_like_nodes(tmp_path: Path) -> None:
    fake = DriverRootBuilder(tmp_path, real_nodes=False).build()
    assert [described(fake.lstat(f"{fake.dev_root}{node}")) for node in NODES] == [
        (stat.S_IFCHR | 0o666, os.makedev(195, 0), 0, 0),
        (stat.S_IFCHR | 0o666, os.makedev(195, 255), 0, 0),
        (stat.S_IFCHR | 0o666, os.makedev(511, 0), 0, 0),
        (stat.S_IFCHR | 0o660, os.makedev(226, 128), 0, 105),
    ]
    assert fake.lstat(fake.path / "usr") == os.lstat(fake.path / "usr")
    fake.remove_node("/dev/nvidia0")
    with pytest.raises(FileNotFoundError):
        fake.lstat(f"{fake.dev_root}/dev/nvidia0")


def test_real_nodes_equal_the_stand_ins(tmp_path: Path) -> None:
    if not may_make_nodes(tmp_path):
        pytest.skip("this process may not create device nodes")
    doubles = DriverRootBuilder(tmp_path / "a", real_nodes=False).build()
    real = DriverRootBuilder(tmp_path / "b").build()
    assert real.real_nodes
    for node in NODES:
        assert described(os.lstat(f"{real.dev_root}{node}")) == described(doubles.lstat(f"{doubles.dev_root}{node}"))


def test_shared_objects_need_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="apt-get install gcc"):
        DriverRootBuilder(tmp_path / "driver").build()
