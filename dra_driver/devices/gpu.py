"""A whole GPU as a DRA device of ``gpu.nvidia.com``.

Names, types and spelling of NVIDIA's driver are kept, so that selectors written for it work unchanged; facts that it
does not publish get new names. Attributes are unqualified and so belong to the driver's domain, except the standard
ones of ``resource.kubernetes.io``. What is unknown is absent: a selector can test with ``has()``, but never sees a
guess.
"""

from __future__ import annotations

import re

from dra_driver.errors import InputError
from dra_driver.inventory.hardware import DriverState, Gpu, Machine, Problem
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import AttributeKind, Device, DeviceAttribute, DeviceCapacity
from dra_driver.model.semver import normalise_version

DRIVER = "gpu.nvidia.com"

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

STRING_LIMIT_BYTES = 64
"""API limit for string and version values (resource.k8s.io DeviceAttributeMaxValueLength)."""

_DEVICE_NAME = re.compile(r"gpu-(\d+)")


def gpu_device_name(gpu: Gpu) -> str:
    """``gpu-<minor>``: the minor number of /dev/nvidiaN is stable while the driver is loaded, the NVML index is not."""
    return f"gpu-{gpu.minor}"


class _Attributes:
    """Collects attributes; ``None`` means unknown and adds nothing, what the API would refuse becomes a problem."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.values: dict[str, DeviceAttribute] = {}
        self.problems: list[Problem] = []

    def add(self, name: str, kind: AttributeKind, value: int | bool | str | None) -> None:
        if value is None:
            return
        if isinstance(value, str) and len(value.encode()) > STRING_LIMIT_BYTES:
            self.problems.append(
                Problem(self.subject, name, f"{value!r} has more than {STRING_LIMIT_BYTES} bytes, the API's limit")
            )
            return
        self.values[name] = DeviceAttribute(kind, value)

    def add_version(self, name: str, text: str | None) -> None:
        if text is None:
            return
        try:
            self.add(name, "version", normalise_version(text))
        except InputError as error:
            self.problems.append(Problem(self.subject, name, f"{text!r} is not a version: {error}"))


def gpu_device(gpu: Gpu, machine: Machine) -> tuple[Device, tuple[Problem, ...]]:
    """Describe one whole GPU.

    Returns:
        The device (without taints), and what had to be left out because the API would refuse it.
    """
    attributes = _Attributes(gpu_device_name(gpu))
    add = attributes.add
    add("type", "string", "gpu")
    add("uuid", "string", gpu.uuid)
    add("productName", "string", gpu.name)
    add("brand", "string", gpu.brand)
    add("architecture", "string", gpu.architecture)
    if gpu.compute_capability is not None:
        attributes.add_version("cudaComputeCapability", "{}.{}".format(*gpu.compute_capability))
    attributes.add_version("driverVersion", machine.driver_version)
    if machine.cuda_driver_version is not None:
        attributes.add_version("cudaDriverVersion", "{}.{}".format(*machine.cuda_driver_version))
    add(PCI_BUS_ID, "string", gpu.pci_bus_id)
    add(PCIE_ROOT, "string", gpu.pcie_root)
    add(NUMA_NODE, "int", gpu.numa_node)
    add("addressingMode", "string", gpu.addressing_mode)

    add("index", "int", gpu.index)
    add("serial", "string", gpu.serial)
    add("eccEnabled", "bool", gpu.ecc_enabled)
    if gpu.mig_enabled is not None:
        add("migMode", "string", "enabled" if gpu.mig_enabled else "disabled")
    add("powerLimitWatts", "int", gpu.power_limit_watts)
    add("nvlinkCount", "int", gpu.nvlink_count)
    attributes.add_version("nvlinkVersion", gpu.nvlink_version)
    if gpu.fabric is not None:
        add("fabricState", "string", gpu.fabric.state)
        # A GPU whose registration failed or is under way can't reach its peers: it belongs to no domain yet.
        if gpu.fabric.state == "completed" and gpu.fabric.status == 0 and gpu.fabric.cluster_uuid is not None:
            add("clusterUUID", "string", gpu.fabric.cluster_uuid)
            add("cliqueID", "int", gpu.fabric.clique_id)
            if gpu.fabric.clique_id is not None:
                add("nvlinkDomain", "string", f"{gpu.fabric.cluster_uuid}.{gpu.fabric.clique_id}")

    capacity = {}
    if gpu.memory_bytes is not None:
        capacity["memory"] = DeviceCapacity(value=Quantity.of_bytes(gpu.memory_bytes))
    device = Device(name=gpu_device_name(gpu), attributes=attributes.values, capacity=capacity)
    return device, tuple(attributes.problems)


def publishable(machine: Machine) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """The GPUs that may be offered whole, in publishing order, and why others are not.

    The order is the scheduler's order of preference (first fit), so it is fixed: by minor number.
    """
    if machine.state is not DriverState.READY:
        return (), ()
    offered: list[Gpu] = []
    problems: list[Problem] = []
    for gpu in sorted(machine.gpus, key=lambda gpu: gpu.minor):
        if gpu.mig_enabled:
            problems.append(
                Problem(
                    gpu_device_name(gpu),
                    "device",
                    "MIG mode is on, so it can't be given away whole",
                    "turn MIG off with: nvidia-smi -i <index> -mig 0",
                )
            )
            continue
        offered.append(gpu)
    return tuple(offered), tuple(problems)


def device_minor(name: str) -> int | None:
    """The minor number in a device name, None for names of other kinds."""
    match = _DEVICE_NAME.fullmatch(name)
    return int(match[1]) if match else None
