"""MIG from the first switch to the last instance, as NVML clients do it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from tests.standin import Standin
from tests.standin.test_library import handle, open_nvml, pytestmark

__all__ = ["open_nvml", "pytestmark"]


@pytest.fixture
def standin(tmp_path: Path, open_nvml: Callable[[Standin], None]) -> Iterator[Standin]:
    standin = Standin.create(tmp_path / "machine", "dgx-h100", count=1)
    open_nvml(standin)
    yield standin
    standin.close()


def profile(index: int) -> pynvml.c_nvmlGpuInstanceProfileInfo_v2_t:
    return pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle(0), index, version=2)


def create(profile_id: int, start: int, size: int) -> object:
    placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle(0), profile_id, ctypes.byref(placement))


def placements(profile_id: int) -> list[tuple[int, int]]:
    count = ctypes.c_uint(8)
    array = (pynvml.c_nvmlGpuInstancePlacement_t * 8)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle(0), profile_id, array, ctypes.byref(count))
    return [(array[i].start, array[i].size) for i in range(count.value)]


def test_profiles_are_those_of_the_model(standin: Standin) -> None:
    names = {}
    for index in range(18):
        try:
            info = profile(index)
        except pynvml.NVMLError_NotSupported:
            continue
        names[info.id] = info.name
    assert names == {
        19: "MIG 1g.10gb",
        20: "MIG 1g.10gb+me",
        15: "MIG 1g.20gb",
        14: "MIG 2g.20gb",
        9: "MIG 3g.40gb",
        5: "MIG 4g.40gb",
        0: "MIG 7g.80gb",
    }
    assert placements(9) == [(0, 4), (4, 4)]
    assert placements(0) == [(0, 8)]


def test_life_of_instances(standin: Standin) -> None:
    gpu = handle(0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        create(9, 4, 4)  # MIG mode is off
    assert pynvml.nvmlDeviceSetMigMode(gpu, 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    big = create(9, 4, 4)
    small = create(19, 0, 1)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        create(9, 4, 4)  # that place is taken
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        create(9, 2, 4)  # no such place
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19) == 3
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(big, 2)
    device = pynvml.nvmlComputeInstanceGetInfo_v2(compute).device
    identity = pynvml.nvmlDeviceGetUUID(device)
    assert identity.startswith("MIG-")
    assert pynvml.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(identity)) == identity
    attributes = pynvml.nvmlDeviceGetAttributes_v2(device)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 3)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlGpuInstanceDestroy(big)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlDeviceSetMigMode(gpu, 0)
    pynvml.nvmlComputeInstanceDestroy(compute)
    pynvml.nvmlGpuInstanceDestroy(big)
    pynvml.nvmlGpuInstanceDestroy(small)
    assert pynvml.nvmlDeviceSetMigMode(gpu, 0) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetMigMode(gpu) == [0, 0]


def test_compute_instances_share_a_gpu_instance(standin: Standin) -> None:
    pynvml.nvmlDeviceSetMigMode(handle(0), 1)
    instance = create(9, 0, 4)
    first = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    second = pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, 4)
    names = [pynvml.nvmlDeviceGetName(pynvml.nvmlComputeInstanceGetInfo_v2(c).device) for c in (first, second)]
    assert names == ["NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "NVIDIA H100 80GB HBM3 MIG 2c.3g.40gb"]


def test_ampere_switches_only_with_a_reset(tmp_path: Path, open_nvml: Callable[[Standin], None]) -> None:
    open_nvml(Standin.create(tmp_path / "ampere", "dgx-a100", count=1))
    assert pynvml.nvmlDeviceSetMigMode(handle(0), 1) == pynvml.NVML_ERROR_RESET_REQUIRED
    assert pynvml.nvmlDeviceGetMigMode(handle(0)) == [0, 1]


def test_a_gpu_without_mig_says_so(tmp_path: Path, open_nvml: Callable[[Standin], None]) -> None:
    open_nvml(Standin.create(tmp_path / "l4", "l4", count=1))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetMigMode(handle(0))


def test_instances_survive_the_session(standin: Standin) -> None:
    identity = None
    pynvml.nvmlDeviceSetMigMode(handle(0), 1)
    compute = pynvml.nvmlGpuInstanceCreateComputeInstance(create(14, 2, 2), 1)
    identity = pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo_v2(compute).device)
    pynvml.nvmlShutdown()
    pynvml.nvmlInitWithFlags(1)
    found = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0)
    assert pynvml.nvmlDeviceGetUUID(found) == identity
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 1)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 7)
