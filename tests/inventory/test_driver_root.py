"""Where driver files are found, and what is said when they are not."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.driver_root import LIBRARY_DIRS, DriverRoot, known_roots

MACHINES = {"x86_64": 62, "aarch64": 183}


def elf(machine: int | None = None, *, bits: int = 64) -> bytes:
    number = MACHINES[platform.machine()] if machine is None else machine
    return b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9) + b"\x03\x00" + number.to_bytes(2, "little") + bytes(44)


def install(root: Path, folder: str = "usr/lib64", content: bytes | None = None) -> Path:
    directory = root / folder
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "libnvidia-ml.so.580.95.05"
    file.write_bytes(elf() if content is None else content)
    (directory / "libnvidia-ml.so.1").symlink_to(file.name)
    return file


@pytest.mark.parametrize("folder", LIBRARY_DIRS)
def test_library_is_found_in_every_known_folder_with_its_link_resolved(tmp_path: Path, folder: str) -> None:
    file = install(tmp_path, folder)
    assert DriverRoot(tmp_path).libnvidia_ml() == file


def test_gke_keeps_libraries_in_lib64_and_programs_in_bin(tmp_path: Path) -> None:
    file = install(tmp_path, "lib64")
    program = tmp_path / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    root = DriverRoot(tmp_path)
    assert root.libnvidia_ml() == file
    assert root.nvidia_smi() == program


def test_nvidia_smi_must_be_executable(tmp_path: Path) -> None:
    program = tmp_path / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o644)
    assert DriverRoot(tmp_path).nvidia_smi() is None


def test_absolute_links_stay_inside_the_root(tmp_path: Path) -> None:
    # Debian: /usr/lib/…/libnvidia-ml.so.1 -> /etc/alternatives/… -> /usr/lib/…/nvidia/current/…
    library_dir = tmp_path / "usr/lib/x86_64-linux-gnu"
    current = library_dir / "nvidia/current"
    current.mkdir(parents=True)
    file = current / "libnvidia-ml.so.580.95.05"
    file.write_bytes(elf())
    alternatives = tmp_path / "etc/alternatives"
    alternatives.mkdir(parents=True)
    (alternatives / "nvidia--libnvidia-ml.so.1").symlink_to(
        "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.580.95.05"
    )
    (library_dir / "libnvidia-ml.so.1").symlink_to("/etc/alternatives/nvidia--libnvidia-ml.so.1")
    assert DriverRoot(tmp_path).libnvidia_ml() == file


def test_links_can_not_climb_out_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib64").mkdir(parents=True)
    (tmp_path / "outside.so").write_bytes(elf())
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to("../../../outside.so")
    assert DriverRoot(root).libnvidia_ml() is None
    (root / "outside.so").write_bytes(elf())
    assert DriverRoot(root).libnvidia_ml() == root / "outside.so"


def test_a_loop_of_links_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.1")
    assert DriverRoot(tmp_path).libnvidia_ml() is None


def test_linked_folders_are_followed(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "lib64").symlink_to("usr/lib64")
    file = install(tmp_path, "usr/lib64")
    assert DriverRoot(tmp_path).resolve("lib64/libnvidia-ml.so.1") == file
    assert DriverRoot(tmp_path).resolve("/lib64/../lib64/libnvidia-ml.so.1") == file
    assert DriverRoot(tmp_path).resolve("usr/lib64/libnvidia-ml.so.1/below-a-file") is None


@pytest.mark.parametrize(
    "content", [elf(bits=32), elf(machine=40), elf(machine=243)], ids=["32-bit", "32-bit-arm", "riscv"]
)
def test_a_library_for_another_machine_does_not_count(tmp_path: Path, content: bytes) -> None:
    install(tmp_path, "usr/lib64", content)
    assert DriverRoot(tmp_path).libnvidia_ml() is None
    file = install(tmp_path, "usr/lib")
    assert DriverRoot(tmp_path).libnvidia_ml() == file


def test_dev_root_is_the_driver_root_only_when_it_has_devices(tmp_path: Path) -> None:
    container, gke = tmp_path / "driver", tmp_path / "gke"
    (container / "dev").mkdir(parents=True)
    gke.mkdir()
    root = DriverRoot(container, host_path="/run/nvidia/driver")
    assert (root.dev_root, root.host_dev_root) == (container, Path("/run/nvidia/driver"))
    root = DriverRoot(gke, host_path="/home/kubernetes/bin/nvidia")
    assert (root.dev_root, root.host_dev_root) == (Path("/"), Path("/"))
    root = DriverRoot(gke, dev_root="/host", host_dev_root="/")
    assert (root.dev_root, root.host_dev_root) == (Path("/host"), Path("/"))


def test_paths_are_told_as_the_host_sees_them() -> None:
    root = DriverRoot("/driver-root", host_path="/run/nvidia/driver", dev_root="/host", host_dev_root="/")
    assert root.on_host(Path("/driver-root/usr/lib64/libcuda.so.1")) == Path(
        "/run/nvidia/driver/usr/lib64/libcuda.so.1"
    )
    assert root.on_host(Path("/host/dev/nvidia0")) == Path("/dev/nvidia0")
    assert root.on_host(Path("/etc/cdi")) == Path("/etc/cdi")


def test_probe_takes_the_first_root_with_a_library(tmp_path: Path) -> None:
    empty, first, second = (DriverRoot(tmp_path / name) for name in ("empty", "first", "second"))
    install(first.path)
    install(second.path)
    assert DriverRoot.probe([empty, first, second]) == first


def test_probe_says_what_was_searched_and_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    roots = [DriverRoot(tmp_path / "there", host_path="/run/nvidia/driver"), DriverRoot(tmp_path / "missing")]
    with pytest.raises(EnvironmentFault) as caught:
        DriverRoot.probe(roots)
    text = str(caught.value)
    assert f"{tmp_path / 'there'} (on the host: /run/nvidia/driver)" in text
    assert f"{tmp_path / 'missing'}, which does not exist" in text
    assert "libnvidia-ml.so.1" in text
    assert "usr/lib/aarch64-linux-gnu" in text
    assert "--driver-root" in text
    assert "/home/kubernetes/bin/nvidia" in text


def test_known_roots_are_the_hosts_under_the_mount_and_then_in_place(tmp_path: Path) -> None:
    mounted = [(root.path, root.host_path) for root in known_roots(tmp_path)][:3]
    assert mounted == [
        (tmp_path, Path("/")),
        (tmp_path / "run/nvidia/driver", Path("/run/nvidia/driver")),
        (tmp_path / "home/kubernetes/bin/nvidia", Path("/home/kubernetes/bin/nvidia")),
    ]
    in_place = [(root.path, root.host_path) for root in known_roots(tmp_path / "missing")]
    assert in_place == [(Path(path), Path(path)) for path in ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")]


def test_a_mounted_root_without_devices_has_them_in_the_hosts_dev_not_in_ours(tmp_path: Path) -> None:
    (tmp_path / "run/nvidia/driver/dev").mkdir(parents=True)
    (tmp_path / "home/kubernetes/bin/nvidia").mkdir(parents=True)
    roots = {str(root.host_path): (root.dev_root, root.host_dev_root) for root in known_roots(tmp_path)[:3]}
    assert roots == {
        "/": (tmp_path, Path("/")),
        "/run/nvidia/driver": (tmp_path / "run/nvidia/driver", Path("/run/nvidia/driver")),
        "/home/kubernetes/bin/nvidia": (tmp_path, Path("/")),
    }
