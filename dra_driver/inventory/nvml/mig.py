"""Existing MIG devices of a GPU.

Their numbering has holes, and each is read on its own: an instance that is being created or destroyed while we look
costs that instance only.
"""

from __future__ import annotations

from functools import partial

from dra_driver.inventory.hardware import MigInstance
from dra_driver.inventory.nvml.calls import INVALID_ARGUMENT, NOT_FOUND, NvmlFailure, call
from dra_driver.inventory.nvml.reading import Reading
from dra_driver.inventory.nvml.session import Handle

_MIB = 2**20
_PROFILE_COUNT = 18
"""NVML_GPU_INSTANCE_PROFILE_COUNT."""


def read_instances(reading: Reading, handle: Handle) -> tuple[MigInstance, ...]:
    """All MIG devices that can be read, by placement; the others are problems of the GPU."""
    most = reading.optional("MIG devices", "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = []
    for index in range(int(most)):
        instance = reading.attempt(f"MIG device {index}", partial(_instance_at, handle, index))
        if instance is not None:
            found.append(instance)
    return tuple(sorted(found, key=lambda mig: (mig.placement_start, mig.compute_instance_id)))


def _instance_at(gpu: Handle, index: int) -> MigInstance | None:
    try:
        mig = call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
    except NvmlFailure as failure:
        if failure.code in (NOT_FOUND, INVALID_ARGUMENT):
            return None
        raise
    instance_id = int(call("nvmlDeviceGetGpuInstanceId", mig))
    attributes = call("nvmlDeviceGetAttributes_v2", mig)
    instance = call("nvmlDeviceGetGpuInstanceById", gpu, instance_id)
    info = call("nvmlGpuInstanceGetInfo", instance)
    return MigInstance(
        uuid=call("nvmlDeviceGetUUID", mig),
        gpu_instance_id=instance_id,
        compute_instance_id=int(call("nvmlDeviceGetComputeInstanceId", mig)),
        profile=_profile_name(gpu, mig, int(info.profileId)),
        profile_id=int(info.profileId),
        placement_start=int(info.placement.start),
        placement_size=int(info.placement.size),
        memory_bytes=int(attributes.memorySizeMB) * _MIB,
        multiprocessors=int(attributes.multiprocessorCount),
        copy_engines=int(attributes.sharedCopyEngineCount),
        decoders=int(attributes.sharedDecoderCount),
        encoders=int(attributes.sharedEncoderCount),
        jpeg_engines=int(attributes.sharedJpegCount),
        ofa_engines=int(attributes.sharedOfaCount),
    )


def _profile_name(gpu: Handle, mig: Handle, profile_id: int) -> str:
    """``1g.10gb+me``: NVML ends a MIG device's name with it; else the profile's own name."""
    name = str(call("nvmlDeviceGetName", mig))
    _, separator, profile = name.rpartition(" MIG ")
    return profile if separator else _listed_profile_name(gpu, profile_id)


def _listed_profile_name(gpu: Handle, profile_id: int) -> str:
    for index in range(_PROFILE_COUNT):
        try:
            info = call("nvmlDeviceGetGpuInstanceProfileInfo", gpu, index)  # version 2, which has the name
        except NvmlFailure:  # no such profile on this GPU; if none fits, the error below tells
            continue
        if int(info.id) == profile_id:
            return str(info.name).removeprefix("MIG ")
    raise NvmlFailure("nvmlDeviceGetGpuInstanceProfileInfo", NOT_FOUND, f"no profile with id {profile_id}")
