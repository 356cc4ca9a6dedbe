"""A whole fake GPU machine: NVML stand-in and driver root that agree on the GPUs, and the daemon's flags for it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.driver_root import DriverRootBuilder, FakeDriverRoot, FakeGpu
from tests.standin import Standin


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """Attributes:
    standin: NVML's state, for faults and changes.
    root: the driver's files, device nodes, sysfs.
    """

    standin: Standin
    root: FakeDriverRoot

    @classmethod
    def create(cls, directory: Path, profile: str = "dgx-h100", *, count: int | None = None) -> GpuMachine:
        """The first ``count`` GPUs of a described machine, as if they were real."""
        standin = Standin.create(directory / "nvml", profile, count=count)
        gpus = [
            FakeGpu(
                minor=gpu.minor,
                uuid=gpu.uuid,
                pci_bus_id=gpu.pci_bus_id or "",
                root_port=_root_port(gpu.pcie_root or "pci0000:00"),
                numa_node=-1 if gpu.numa_node is None else gpu.numa_node,
                card=gpu.minor,
                render=128 + gpu.minor,
            )
            for gpu in standin.machine.gpus
        ]
        builder = DriverRootBuilder(
            directory / "driver",
            driver_version=standin.driver_version,
            gpus=gpus,
            libnvidia_ml=standin.library,
        )
        boot_id = standin.proc / "sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text(f"{uuid.uuid4()}\n")
        return cls(standin, builder.build())

    def upgrade(self, version: str) -> None:
        """Replace the driver by another version, as an administrator does: files, kernel module and NVML."""
        self.root.upgrade(version)
        self.standin.install(self.root.path, version=version)
        self.standin.set_driver(version)

    @property
    def flags(self) -> list[str]:
        """Flags of ``dra-driver node`` that make it see this machine."""
        return [
            *("--driver-root", str(self.root.path)),
            *("--sys-root", str(self.root.sysfs)),
            *("--proc-root", str(self.standin.proc)),
        ]

    @property
    def env(self) -> dict[str, str]:
        return {"NVML_STANDIN_STATE": str(self.standin.state_file)}


def _root_port(pcie_root: str) -> str:
    return f"{pcie_root}/{pcie_root.removeprefix('pci')}:01.0"
