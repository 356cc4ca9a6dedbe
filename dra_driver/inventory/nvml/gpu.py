"""Everything about one GPU.

UUID and minor number are required: without them there is no device to name and none to inject. Every other fact is
optional. What a driver does not support is left out; what failed is listed in :attr:`Gpu.problems`.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.inventory import codes, pci
from dra_driver.inventory.hardware import Gpu
from dra_driver.inventory.nvml.calls import UNKNOWN, NvmlFailure, call
from dra_driver.inventory.nvml.fabric import read_fabric
from dra_driver.inventory.nvml.mig import read_instances
from dra_driver.inventory.nvml.nvlink import read_links
from dra_driver.inventory.nvml.reading import Reading
from dra_driver.inventory.nvml.session import Handle


def read_gpu(reading: Reading, handle: Handle, index: int, sysfs: Path) -> Gpu:
    """Read one GPU.

    Raises:
        NvmlFailure: it has no UUID or minor number, or is lost.
    """
    uuid = reading.required("nvmlDeviceGetUUID", handle)
    if not uuid:
        raise NvmlFailure("nvmlDeviceGetUUID", UNKNOWN, "answered without a UUID")
    minor = int(reading.required("nvmlDeviceGetMinorNumber", handle))
    reading.subject = f"gpu-{minor}"
    optional = reading.optional
    brand = optional("brand", "nvmlDeviceGetBrand", handle)
    architecture = optional("architecture", "nvmlDeviceGetArchitecture", handle)
    capability = optional("cudaComputeCapability", "nvmlDeviceGetCudaComputeCapability", handle)
    memory = optional("memory", "nvmlDeviceGetMemoryInfo", handle)
    ecc = optional("eccEnabled", "nvmlDeviceGetEccMode", handle)
    mig = optional("migMode", "nvmlDeviceGetMigMode", handle)
    bus_id = reading.attempt("pciBusID", lambda: _bus_id(handle))
    links, link_version = read_links(reading, handle)
    return Gpu(
        index=index,
        minor=minor,
        uuid=uuid,
        name=optional("productName", "nvmlDeviceGetName", handle) or None,
        brand=codes.BRANDS.get(brand, codes.UNKNOWN),
        architecture=codes.ARCHITECTURES.get(architecture, codes.UNKNOWN),
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        memory_bytes=int(memory.total) or None if memory else None,
        pci_bus_id=bus_id,
        pcie_root=reading.attempt("pcieRoot", lambda: pci.pcie_root(bus_id, sysfs)) if bus_id else None,
        numa_node=reading.attempt("numaNode", lambda: pci.numa_node(bus_id, sysfs)) if bus_id else None,
        addressing_mode=_addressing_mode(reading, handle),
        module_id=_module_id(reading, handle),
        serial=optional("serial", "nvmlDeviceGetSerial", handle) or None,
        ecc_enabled=bool(ecc[0]) if ecc else None,
        mig_enabled=bool(mig[0]) if mig else None,
        mig_pending=bool(mig[1]) if mig else None,
        mig_instances=read_instances(reading, handle) if mig and mig[0] else (),
        nvlink_count=links,
        nvlink_version=link_version,
        power_limit_watts=_power_limit(reading, handle),
        fabric=read_fabric(reading, handle),
        problems=tuple(reading.problems),
    )


def _bus_id(handle: Handle) -> str:
    reported = call("nvmlDeviceGetPciInfo_v3", handle).busId
    try:
        return pci.normalise_bus_id(reported)
    except InputError as error:
        raise EnvironmentFault(f"NVML tells an impossible PCI address: {error.message}") from None


def _addressing_mode(reading: Reading, handle: Handle) -> str | None:
    code = reading.optional("addressingMode", "nvmlDeviceGetAddressingMode", handle)
    if code is None:
        return None
    mode = codes.ADDRESSING_MODES.get(int(code))
    if mode is None:
        reading.problem("addressingMode", f"NVML tells the mode {code}, which this release does not know")
    return mode


def _module_id(reading: Reading, handle: Handle) -> int | None:
    # pynvml's default argument is one object shared by all calls: threads would read each other's answer.
    return reading.attempt("moduleID", lambda: int(call("nvmlDeviceGetModuleId", handle, ctypes.c_uint())))


def _power_limit(reading: Reading, handle: Handle) -> int | None:
    """Watts; NVML tells milliwatts."""
    milliwatts = reading.optional("powerLimitWatts", "nvmlDeviceGetEnforcedPowerLimit", handle)
    return None if milliwatts is None else (int(milliwatts) + 500) // 1000
