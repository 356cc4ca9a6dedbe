"""The kernel's view of a machine, as far as the driver reads it: ``/sys/bus/pci/devices`` and
``/proc/driver/nvidia``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dra_driver.inventory.profile import MachineLayout, Position

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS_3D = "0x030200"


def add_pci_device(
    sysfs: Path,
    bus_id: str,
    *,
    root: str,
    between: Sequence[str] = (),
    numa_node: int = -1,
    vendor: str = NVIDIA_VENDOR,
    device: str = "0x2330",
    device_class: str = DISPLAY_CLASS_3D,
) -> Path:
    """A PCI device below a root complex, behind the bridges and switch ports ``between``, as sysfs lays it out."""
    folder = sysfs.joinpath("devices", root, *between, bus_id)
    folder.mkdir(parents=True)
    for name, text in {
        "numa_node": str(numa_node),
        "vendor": vendor,
        "device": device,
        "class": device_class,
    }.items():
        (folder / name).write_text(text + "\n")
    devices = sysfs / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / bus_id).symlink_to(Path("../../../devices", root, *between, bus_id))
    return folder


def remove_pci_device(sysfs: Path, bus_id: str) -> None:
    """Take a device away again; missing is fine."""
    link = sysfs / "bus/pci/devices" / bus_id
    if link.is_symlink():
        shutil.rmtree(link.resolve())
        link.unlink()


def write_sysfs(sysfs: Path, layout: MachineLayout, positions: Sequence[Position]) -> None:
    """The PCI devices of a machine, each behind a root port."""
    (sysfs / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for position in positions:
        domain, bus, _ = position.pci_bus_id.split(":")
        port = f"{domain}:{position.pcie_root.split(':')[1]}:{int(bus, 16) % 32:02x}.1"
        add_pci_device(
            sysfs,
            position.pci_bus_id,
            root=position.pcie_root,
            between=(port,),
            numa_node=-1 if position.numa_node is None else position.numa_node,
            device=f"{layout.model.pci_device_id:#06x}",
        )


def write_driver_version(proc: Path, version: str | None) -> None:
    """``/proc/driver/nvidia/version`` of a loaded kernel module; None: no module is loaded."""
    folder = proc / "driver/nvidia"
    if version is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "version").write_text(
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (builder@host)\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )


def write_gpu_information(proc: Path, bus_ids: Sequence[str]) -> None:
    """The folders ``/proc/driver/nvidia/gpus/<address>`` of the GPUs that the kernel module drives."""
    gpus = proc / "driver/nvidia/gpus"
    for stale in gpus.iterdir() if gpus.is_dir() else ():
        if stale.name not in bus_ids:
            shutil.rmtree(stale)
    for minor, bus_id in enumerate(bus_ids):
        folder = gpus / bus_id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(f"Bus Location: \t {bus_id}\nDevice Minor: \t {minor}\n")
