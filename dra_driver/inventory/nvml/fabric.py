"""A GPU's registration in an NVLink fabric.

nvmlDeviceGetGpuFabricInfoV takes structs of several versions and refuses those it does not know; the oldest drivers
have only the unversioned function. Asked from the newest to the oldest. Which GPUs can reach each other (cluster UUID
and clique)
is taken over only from a registration that has completed without error: before that the fields hold nothing.
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

import pynvml

from dra_driver.inventory import codes
from dra_driver.inventory.hardware import Fabric
from dra_driver.inventory.nvml.calls import ARGUMENT_VERSION_MISMATCH, FUNCTION_NOT_FOUND, NvmlFailure, call
from dra_driver.inventory.nvml.reading import Reading
from dra_driver.inventory.nvml.session import Handle

_TOO_NEW = frozenset({ARGUMENT_VERSION_MISMATCH, FUNCTION_NOT_FOUND})
_VERSIONS = (
    ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v3_t),
    ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t),
    ("nvmlDeviceGetGpuFabricInfo", pynvml.c_nvmlGpuFabricInfo_t),
)


def read_fabric(reading: Reading, handle: Handle) -> Fabric | None:
    """The registration; None when the GPU has no fabric or can't tell."""
    info = reading.attempt("fabricState", lambda: _newest(handle))
    if info is None:
        return None
    # state is one byte in C but four in pynvml: the other three are padding with any content
    code = int(info.state) & 0xFF
    if code == 0:
        return None
    state = codes.FABRIC_STATES.get(code)
    if state is None:
        reading.problem("fabricState", f"NVML tells the state {code}, which this release does not know")
        return None
    registered = state == "completed" and int(info.status) == 0
    cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
    return Fabric(
        state=state,
        status=int(info.status),
        cluster_uuid=str(cluster) if registered and cluster.int else None,
        clique_id=int(info.cliqueId) if registered else None,
        health_summary=int(getattr(info, "healthSummary", 0)) or None,
    )


def _newest(handle: Handle) -> Any:
    """The struct of the newest version that the driver fills."""
    for function, struct in _VERSIONS:
        info = struct()
        try:
            call(function, handle, ctypes.byref(info))
        except NvmlFailure as failure:
            if failure.code not in _TOO_NEW:
                raise
            continue
        return info
    raise NvmlFailure("nvmlDeviceGetGpuFabricInfo", FUNCTION_NOT_FOUND, "no version that the driver knows")
