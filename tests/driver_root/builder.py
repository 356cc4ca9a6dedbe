"""Lays out the fake driver root; every other method changes one thing, as an administrator or the driver would."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from dra_driver.inventory.hardware import Gpu
from tests.driver_root.contents import CONFIGURATION, FIRMWARE, LIBRARIES, PROGRAMS, SOCKETS, Library
from tests.driver_root.elf import shared_object

NVIDIA_MAJOR = 195
UVM_MAJOR = 511
DRM_MAJOR = 226
VIDEO_GID = 44
RENDER_GID = 105
DEFAULT_VERSION = "580.95.05"


class Layout(Enum):
    """Where a distribution puts libraries: Debian's multiarch directories, or /usr/lib64."""

    DEBIAN = "usr/lib/x86_64-linux-gnu"
    RHEL = "usr/lib64"

    @property
    def library_directory(self) -> str:
        return self.value

    @property
    def xorg(self) -> tuple[str, str]:
        """Directories of X.Org drivers and of X.Org extensions."""
        if self is Layout.DEBIAN:
            return f"{self.value}/nvidia/xorg", f"{self.value}/nvidia/xorg"
        return f"{self.value}/xorg/modules/drivers", f"{self.value}/xorg/modules/extensions"

    @property
    def merged(self) -> str:
        """The top-level directory that is a link into /usr on merged-/usr systems."""
        return "lib" if self is Layout.DEBIAN else "lib64"


@dataclass(frozen=True, slots=True)
class FakeGpu:
    """One GPU as sysfs, procfs and /dev show it; ``card`` and ``render`` are None without the nvidia-drm module."""

    minor: int
    uuid: str
    pci_bus_id: str
    root_port: str
    numa_node: int
    card: int | None
    render: int | None

    @property
    def node(self) -> str:
        return f"/dev/nvidia{self.minor}"

    @classmethod
    def of(cls, gpu: Gpu, *, drm: bool = True) -> FakeGpu:
        """The files of a GPU that an inventory or the NVML stand-in describes."""
        if gpu.pci_bus_id is None:
            raise ValueError(f"gpu-{gpu.minor} has no PCI address")
        return cls(
            minor=gpu.minor,
            uuid=gpu.uuid,
            pci_bus_id=gpu.pci_bus_id,
            root_port=gpu.pcie_root or "pci0000:00",
            numa_node=-1 if gpu.numa_node is None else gpu.numa_node,
            card=gpu.minor if drm else None,
            render=128 + gpu.minor if drm else None,
        )


@dataclass(slots=True)
class FakeDriverRoot:
    """A built root. ``dev_root`` holds /dev, ``sysfs`` and ``proc`` stand for /sys and /proc."""

    path: Path
    dev_root: Path
    sysfs: Path
    proc: Path
    layout: Layout
    driver_version: str
    gpus: tuple[FakeGpu, ...]
    real_nodes: bool
    _doubles: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    @property
    def library_directory(self) -> Path:
        return self.path / self.layout.library_directory

    def lstat(self, path: str | os.PathLike[str]) -> os.stat_result:
        """``os.lstat``, except that a stand-in file of a device node looks like the node. Units: as in stat(2)."""
        found = os.lstat(path)
        double = self._doubles.get(os.fspath(path))
        if double is None:
            return found
        mode, major, minor, gid = double
        values = list(found[:10])
        values[stat.ST_MODE] = stat.S_IFCHR | mode
        values[stat.ST_UID], values[stat.ST_GID] = 0, gid
        return os.stat_result(
            tuple(values),
            {"st_rdev": os.makedev(major, minor), "st_mtime_ns": found.st_mtime_ns, "st_ctime_ns": found.st_ctime_ns},
        )

    def add_node(self, path: str, major: int, minor: int, *, mode: int = 0o666, gid: int = 0) -> Path:
        """Make the character device ``path`` (absolute, as in a container) below the dev root."""
        node = self.dev_root / path.lstrip("/")
        node.parent.mkdir(parents=True, exist_ok=True)
        if self.real_nodes:
            os.mknod(node, stat.S_IFCHR | mode, os.makedev(major, minor))
            os.chown(node, 0, gid)
            node.chmod(mode)
        else:
            node.touch()
            self._doubles[str(node)] = (mode, major, minor, gid)
        return node

    def remove_node(self, path: str) -> None:
        """Take the device node away, as a driver that is unloaded does."""
        node = self.dev_root / path.lstrip("/")
        node.unlink()
        self._doubles.pop(str(node), None)

    def add_gpu(self, gpu: FakeGpu) -> None:
        """Nodes, DRM nodes with by-path links, sysfs and procfs entries of one GPU."""
        self.add_node(gpu.node, NVIDIA_MAJOR, gpu.minor)
        device = self.sysfs / "devices" / gpu.root_port / gpu.pci_bus_id
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{gpu.numa_node}\n")
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        bus = self.sysfs / "bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / gpu.pci_bus_id).symlink_to(f"../../../devices/{gpu.root_port}/{gpu.pci_bus_id}")
        information = self.proc / "driver/nvidia/gpus" / gpu.pci_bus_id / "information"
        information.parent.mkdir(parents=True)
        information.write_text(
            f"Model: \t\t NVIDIA\nIRQ:   \t\t 16\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.pci_bus_id}\n"
            f"Device Minor: \t {gpu.minor}\n"
        )
        by_path = self.dev_root / "dev/dri/by-path"
        for kind, name, minor, gid in (
            ("card", f"card{gpu.card}", gpu.card, VIDEO_GID),
            ("render", f"renderD{gpu.render}", gpu.render, RENDER_GID),
        ):
            if minor is None:
                continue
            (device / "drm" / name).mkdir(parents=True)
            self.add_node(f"/dev/dri/{name}", DRM_MAJOR, minor, mode=0o660, gid=gid)
            by_path.mkdir(exist_ok=True)
            (by_path / f"pci-{gpu.pci_bus_id}-{kind}").symlink_to(f"../{name}")

    def add_control_nodes(self) -> None:
        """/dev/nvidiactl and its like; present as soon as the kernel modules are loaded."""
        for name, major, minor in (
            ("nvidia-modeset", NVIDIA_MAJOR, 254),
            ("nvidiactl", NVIDIA_MAJOR, 255),
            ("nvidia-uvm", UVM_MAJOR, 0),
            ("nvidia-uvm-tools", UVM_MAJOR, 1),
        ):
            self.add_node(f"/dev/{name}", major, minor)

    def add_library(self, library: Library, *, content: Path | None = None) -> None:
        """Install one library with its links, as the current driver version."""
        drivers, extensions = self.layout.xorg
        relative = {
            "lib": self.layout.library_directory,
            "xorg-drivers": drivers,
            "xorg-extensions": extensions,
        }.get(library.place, f"{self.layout.library_directory}/{library.place}")
        directory = self.path / relative
        directory.mkdir(parents=True, exist_ok=True)
        version = {"v": self.driver_version}
        target = directory / library.name.format_map(version)
        shutil.copyfile(content or shared_object(library.soname.format_map(version)), target)
        target.chmod(0o755)
        for link, destination in library.links:
            (directory / link.format_map(version)).symlink_to(destination.format_map(version))

    def add_program(self, name: str, *, directory: str = "usr/bin") -> Path:
        """An executable that does nothing."""
        program = self.path / directory / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
        return program

    def add_file(self, path: str, content: str = "{}\n") -> Path:
        """Any other file below the driver root."""
        target = self.path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        return target

    def add_socket(self, path: str) -> None:
        """A listening point of a daemon; bound through the directory because socket paths end at 107 bytes."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(target.parent, os.O_DIRECTORY | os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"/proc/self/fd/{directory}/{target.name}")
        finally:
            os.close(directory)

    def upgrade(self, driver_version: str) -> None:
        """Replace every file of the driver by those of another version, as a package manager does."""
        self.remove_driver_files()
        self.driver_version = driver_version
        self.add_driver_files()

    def remove_driver_files(self) -> None:
        """Take libraries and firmware away."""
        shutil.rmtree(self.library_directory)
        for directory in self.layout.xorg:
            shutil.rmtree(self.path / directory, ignore_errors=True)
        shutil.rmtree(self.path / "lib/firmware/nvidia", ignore_errors=True)

    def add_driver_files(self, libnvidia_ml: Path | None = None) -> None:
        """Libraries and firmware of the current version."""
        for library in LIBRARIES:
            is_nvml = library.name.startswith("libnvidia-ml.so")
            self.add_library(library, content=libnvidia_ml if is_nvml else None)
        gbm = self.library_directory / "gbm"
        gbm.mkdir()
        (gbm / "nvidia-drm_gbm.so").symlink_to("../libnvidia-allocator.so.1")
        for firmware in FIRMWARE:
            self.add_file(f"lib/firmware/nvidia/{self.driver_version}/{firmware}", "firmware\n")


def _gpu(minor: int, *, drm: bool) -> FakeGpu:
    """The ``minor``-th GPU of a two-socket machine with one root port per GPU."""
    bus = 0x1A + minor
    return FakeGpu(
        minor=minor,
        uuid=f"GPU-00000000-0000-4000-8000-{minor:012d}",
        pci_bus_id=f"0000:{bus:02x}:00.0",
        root_port=f"pci0000:{0x10 + minor:02x}/0000:{0x10 + minor:02x}:01.0",
        numa_node=minor // 4,
        card=minor if drm else None,
        render=128 + minor if drm else None,
    )


def may_make_nodes(directory: Path) -> bool:
    """Whether this process can create device nodes in ``directory``."""
    probe = directory / ".node-probe"
    try:
        os.mknod(probe, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        return False
    probe.unlink()
    return True


@dataclass(slots=True)
class DriverRootBuilder:
    """What to build.

    Attributes:
        directory: an empty directory; the driver root is ``directory/root``, /sys and /proc are beside it.
        gpus: how many GPUs, or the GPUs themselves (their bus ids must be those that NVML tells).
        drm: DRM nodes too.
        graphics: X.Org and EGL files, Vulkan files, nvidia-xconfig.
        libnvidia_ml: a library to install as libnvidia-ml.so.<version> (the NVML stand-in).
        real_nodes: True needs the right to mknod; None decides by that right; False always uses stand-in files.
    """

    directory: Path
    driver_version: str = DEFAULT_VERSION
    gpus: int | Iterable[FakeGpu] = 1
    layout: Layout = Layout.DEBIAN
    drm: bool = True
    graphics: bool = True
    libnvidia_ml: Path | None = None
    real_nodes: bool | None = None
    hook: str | None = "usr/bin/nvidia-cdi-hook"

    def build(self) -> FakeDriverRoot:
        """Lay everything out and say where it is."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "root"
        path.mkdir()
        real = may_make_nodes(path) if self.real_nodes is None else self.real_nodes
        gpus = tuple(_gpu(n, drm=self.drm) for n in range(self.gpus)) if isinstance(self.gpus, int) else (*self.gpus,)
        root = FakeDriverRoot(
            path=path,
            dev_root=path,
            sysfs=self.directory / "sys",
            proc=self.directory / "proc",
            layout=self.layout,
            driver_version=self.driver_version,
            gpus=gpus,
            real_nodes=real,
        )
        (path / "usr/lib").mkdir(parents=True)
        root.library_directory.mkdir(exist_ok=True)
        (path / self.layout.merged).symlink_to(f"usr/{self.layout.merged}")
        if self.layout is not Layout.DEBIAN:
            (path / "lib").symlink_to("usr/lib")
        root.add_driver_files(self.libnvidia_ml)
        for program in PROGRAMS:
            root.add_program(program)
        if self.graphics:
            self._add_configuration(root)
        for name in SOCKETS:
            root.add_socket(name)
        (path / "tmp/nvidia-mps").mkdir(parents=True)
        if self.hook is not None:
            root.add_program(Path(self.hook).name, directory=str(Path(self.hook).parent))
        root.add_control_nodes()
        for gpu in gpus:
            root.add_gpu(gpu)
        self._add_kernel_files(root)
        return root

    def _add_configuration(self, root: FakeDriverRoot) -> None:
        for name in CONFIGURATION:
            root.add_file(name)
        if self.layout is Layout.DEBIAN:
            root.add_file("usr/share/vulkan/icd.d/nvidia_icd.json")
        else:
            root.add_file("usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
        root.add_file("usr/share/vulkan/implicit_layer.d/nvidia_layers.json")

    def _add_kernel_files(self, root: FakeDriverRoot) -> None:
        (root.sysfs / "module/firmware_class/parameters").mkdir(parents=True)
        (root.sysfs / "module/firmware_class/parameters/path").write_text("\n")
        driver = root.proc / "driver/nvidia"
        driver.mkdir(parents=True, exist_ok=True)
        (driver / "version").write_text(
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {root.driver_version}  Release Build\n"
        )
        (driver / "params").write_text("ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n")
        (root.proc / "devices").write_text(
            f"Character devices:\n{NVIDIA_MAJOR} nvidia\n{NVIDIA_MAJOR} nvidiactl\n{DRM_MAJOR} drm\n"
            f"{UVM_MAJOR} nvidia-uvm\n508 nvidia-caps\n\nBlock devices:\n  7 loop\n"
        )
