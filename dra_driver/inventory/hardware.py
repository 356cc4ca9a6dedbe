"""What a node's GPUs are, as immutable values; every unknown is ``None``, never a guess.

One value type serves the real inventory (NVML, sysfs) and the described one (profiles), so that everything above sees
no difference. Sources per field are NVML calls as named in nvml.h and paths under /sys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class DriverState(Enum):
    """Whether the NVIDIA driver answers. Anything but READY means "no devices now", not a failure of the node."""

    READY = "ready"
    NO_LIBRARY = "no-library"
    NOT_LOADED = "driver-not-loaded"
    VERSION_MISMATCH = "version-mismatch"
    NO_PERMISSION = "no-permission"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that could not be found out.

    Attributes:
        subject: ``gpu-3`` / ``GPU index 3`` / ``driver``.
        what: the attribute or step that is missing, e.g. ``memory``.
        cause: the NVML error or file error in words.
        hint: what an operator can do, or empty.
    """

    subject: str
    what: str
    cause: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Fabric:
    """NVLink fabric registration (nvmlDeviceGetGpuFabricInfoV).

    Attributes:
        state: ``not-started``, ``in-progress`` or ``completed``.
        status: NVML return code of the registration, 0 when it succeeded; meaningful when completed.
        cluster_uuid: lower-case UUID, None when all zero (no multi-node NVLink).
        clique_id: partition within the cluster.
        health_summary: 1 healthy, 2 unhealthy, 3 limited; None when the driver does not tell.
    """

    state: str
    status: int = 0
    cluster_uuid: str | None = None
    clique_id: int | None = None
    health_summary: int | None = None


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One existing MIG device (GPU instance + compute instance)."""

    uuid: str
    gpu_instance_id: int
    compute_instance_id: int
    profile: str
    profile_id: int
    placement_start: int
    placement_size: int
    memory_bytes: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One whole GPU.

    Attributes:
        minor: N of /dev/nvidiaN; names the device ``gpu-N``.
        index: NVML index at discovery.
        name: product name; None when the driver does not tell it.
        brand, architecture: in the words of :mod:`dra_driver.inventory.codes`.
        memory_bytes: total as NVML reports it; None on unified-memory parts.
        pci_bus_id: ``dddd:bb:dd.f`` lower case.
        pcie_root: ``pciDDDD:BB`` from sysfs.
        numa_node: node of the nearest CPUs, from sysfs; None when the platform reports none (-1). NVML's own
            nvmlDeviceGetNumaNodeId is another thing, the node that the GPU's memory forms on coherent platforms.
        addressing_mode: ``None``, ``HMM`` or ``ATS`` (text) as published; None when the driver does not tell.
        mig_enabled: current MIG mode; None when the GPU is not MIG capable.
        mig_pending: mode after the next reset.
        nvlink_count: links whose state is enabled; None when the GPU has no links or can't tell.
        nvlink_version: of those links, e.g. ``4.0``; NVML answers with a code, see ``codes.NVLINK_VERSIONS``.
        power_limit_watts: enforced limit.
        problems: what could not be read, for logs and doctor.
    """

    index: int
    minor: int
    uuid: str
    name: str | None = None
    brand: str = "Unknown"
    architecture: str = "Unknown"
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    pci_bus_id: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    addressing_mode: str | None = None
    module_id: int | None = None
    serial: str | None = None
    ecc_enabled: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    nvlink_count: int | None = None
    nvlink_version: str | None = None
    power_limit_watts: int | None = None
    fabric: Fabric | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node's GPU hardware at one moment.

    Attributes:
        state: whether the driver answers.
        reason: why it does not, or why a driver that answers has no GPU; empty when all is well.
        hint: what an operator can do about it; empty when nothing is known.
        source: ``nvml`` or ``profile:<name>``; described machines have no device nodes.
        driver_version: as the driver prints it, e.g. ``580.65.06``.
        cuda_driver_version: (major, minor).
        gpus: usable GPUs in NVML index order.
        problems: GPUs that are lost or unreadable, and other findings.
    """

    state: DriverState
    source: str
    reason: str = ""
    hint: str = ""
    driver_version: str | None = None
    cuda_driver_version: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Problem, ...] = field(default=())

    @property
    def described(self) -> bool:
        """True for a machine that exists only as a profile."""
        return self.source.startswith("profile:")
