"""The library behaves as NVML does where clients depend on it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from tests.standin import WHOLE_GPU, Standin, compiler, layout, library
from tests.standin.build import symbol_names

pytestmark = pytest.mark.skipif(
    compiler() is None and not os.environ.get("CI"), reason="the NVML stand-in needs a C compiler"
)


@pytest.fixture
def open_nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Standin], None]]:
    """Opens this process's pynvml session on a stand-in."""
    opened = 0

    def open_session(standin: Standin) -> None:
        nonlocal opened
        monkeypatch.setenv("NVML_STANDIN_STATE", str(standin.state_file))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library())))
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlInitWithFlags(1)
        opened += 1

    yield open_session
    for _ in range(opened):
        pynvml.nvmlShutdown()
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def standin(tmp_path: Path, open_nvml: Callable[[Standin], None]) -> Iterator[Standin]:
    standin = Standin.create(tmp_path / "machine", "dgx-a100", count=2)
    open_nvml(standin)
    yield standin
    standin.heal()
    standin.close()


def handle(index: int) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def test_every_symbol_that_a_binding_looks_up_is_there() -> None:
    loaded = ctypes.CDLL(str(library()))
    missing = [name for name in symbol_names() if not hasattr(loaded, name)]
    assert missing == []
    assert len(symbol_names()) >= 428


def test_a_fresh_process_finds_it_by_name_alone(tmp_path: Path) -> None:
    standin = Standin.create(tmp_path, "gb300-nvl72")
    program = (
        "import json, pynvml as p\n"
        "p.nvmlInit()\n"
        "handles = [p.nvmlDeviceGetHandleByIndex(i) for i in range(p.nvmlDeviceGetCount())]\n"
        "print(json.dumps([p.nvmlDeviceGetUUID(handle) for handle in handles]))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **standin.env}, capture_output=True, text=True, check=True
    )
    assert json.loads(finished.stdout) == [gpu.uuid for gpu in standin.machine.gpus]


def test_state_file_of_another_layout_is_refused(tmp_path: Path, open_nvml: Callable[[Standin], None]) -> None:
    standin = Standin.create(tmp_path, "t4")
    standin.state.layout_size -= 4
    with pytest.raises(pynvml.NVMLError) as caught:
        open_nvml(standin)
    assert caught.value.value == pynvml.NVML_ERROR_UNKNOWN


def test_one_process_turns_to_another_machine(
    standin: Standin, tmp_path: Path, open_nvml: Callable[[Standin], None]
) -> None:
    old = handle(0)
    assert pynvml.nvmlDeviceGetName(old) == "NVIDIA A100-SXM4-40GB"
    pynvml.nvmlShutdown()
    other = Standin.create(tmp_path / "other", "l4", count=1)
    open_nvml(other)
    assert pynvml.nvmlDeviceGetName(handle(0)) == "NVIDIA L4"
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetName(old)
    pynvml.nvmlInitWithFlags(1)  # for the shutdown that the fixture expects


@pytest.mark.parametrize(
    ("function", "struct", "good", "bad"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", pynvml.c_nvmlMemory_v2_t, 0x02000028, 0x01000028),
        ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t, 0x02000024, 0x02000028),
        ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v3_t, 0x03000028, 0x04000028),
        ("nvmlDeviceGetAddressingMode", pynvml.c_nvmlDeviceAddressingMode_t, 0x01000008, 0),
        ("nvmlDeviceGetSramEccErrorStatus", pynvml.c_nvmlEccSramErrorStatus_v1_t, 0x01000068, 0x02000068),
        ("nvmlDeviceGetPciInfoExt", pynvml.nvmlPciInfoExt_v1_t, 0x01000040, 0x01000044),
    ],
)
def test_versioned_structs_are_checked(
    tmp_path: Path,
    open_nvml: Callable[[Standin], None],
    function: str,
    struct: type[ctypes.Structure],
    good: int,
    bad: int,
) -> None:
    open_nvml(Standin.create(tmp_path, "dgx-h100", count=1))
    argument = struct()
    raw = ctypes.c_uint.from_buffer(argument)
    pointer = pynvml._nvmlGetFunctionPointer(function)
    raw.value = good
    assert pointer(handle(0), ctypes.byref(argument)) == pynvml.NVML_SUCCESS
    raw.value = bad
    assert pointer(handle(0), ctypes.byref(argument)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_fault_is_for_one_gpu_and_as_often_as_told(standin: Standin) -> None:
    standin.fault("nvmlDeviceGetSerial", 1, "NOT_SUPPORTED", times=2)
    assert pynvml.nvmlDeviceGetSerial(handle(0))
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetSerial(handle(1))
    assert pynvml.nvmlDeviceGetSerial(handle(1))


def test_name_without_version_stands_for_all_versions(standin: Standin) -> None:
    fault = standin.fault("nvmlDeviceGetPciInfo", 0, 999)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetPciInfo_v3(handle(0))
    standin.remove(fault)
    standin.fault("nvmlDeviceGetPciInfo_v2", 0, 999)
    assert pynvml.nvmlDeviceGetPciInfo_v3(handle(0))


def test_delay_ends_when_it_is_removed(standin: Standin) -> None:
    delay = standin.delay("nvmlDeviceGetSerial", 0, 3600)
    answers: list[str] = []
    gpu = handle(0)
    thread = threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetSerial(gpu)))
    thread.start()
    while not standin.hits(delay):
        pass
    assert answers == []
    standin.remove(delay)
    thread.join()
    assert answers == [standin.machine.gpus[0].serial]


def test_lost_gpu_answers_nothing(standin: Standin) -> None:
    gpu = handle(1)
    standin.lose(1)
    for ask in (pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetMemoryInfo, pynvml.nvmlDeviceGetMigMode):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            ask(gpu)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        handle(1)
    standin.restore(1)
    assert pynvml.nvmlDeviceGetUUID(gpu) == standin.machine.gpus[1].uuid


def test_session_rules(standin: Standin) -> None:
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    standin.set_count(0)
    with pytest.raises(pynvml.NVMLError):
        pynvml.nvmlInit()
    pynvml.nvmlInitWithFlags(1)
    standin.set_count(2)
    assert pynvml.nvmlDeviceGetCount() == 0, "a session sees what was there when it began"
    standin.unload()
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlDeviceGetCount()
    standin.load()
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlDeviceGetCount()


def test_events_reach_subscribers(standin: Standin) -> None:
    subscribed = pynvml.nvmlEventSetCreate()
    mask = pynvml.nvmlDeviceGetSupportedEventTypes(handle(0))
    assert mask & pynvml.nvmlEventTypeXidCriticalError
    pynvml.nvmlDeviceRegisterEvents(handle(0), pynvml.nvmlEventTypeXidCriticalError, subscribed)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceRegisterEvents(handle(0), pynvml.nvmlEventTypeClock, subscribed)
    standin.event(1, pynvml.nvmlEventTypeXidCriticalError, 13)  # nobody subscribed to that GPU
    standin.event(0, pynvml.nvmlEventTypeDoubleBitEccError)  # nor to that type
    standin.event(0, pynvml.nvmlEventTypeXidCriticalError, 79)
    standin.event(0, pynvml.nvmlEventTypeXidCriticalError, 31, gi=5, ci=0)
    event = pynvml.nvmlEventSetWait_v2(subscribed, 1000)
    assert (event.eventData, event.gpuInstanceId) == (79, WHOLE_GPU)
    assert pynvml.nvmlDeviceGetUUID(event.device) == standin.machine.gpus[0].uuid
    event = pynvml.nvmlEventSetWait_v2(subscribed, 1000)
    assert (event.eventData, event.gpuInstanceId, event.computeInstanceId) == (31, 5, 0)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(subscribed, 1)
    pynvml.nvmlEventSetFree(subscribed)


def test_the_ring_of_events_keeps_the_newest(standin: Standin) -> None:
    subscribed = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(0), pynvml.nvmlEventTypeXidCriticalError, subscribed)
    for xid in range(layout.MAX_EVENTS + 10):
        standin.event(0, pynvml.nvmlEventTypeXidCriticalError, xid)
    seen = [pynvml.nvmlEventSetWait_v2(subscribed, 1).eventData for _ in range(layout.MAX_EVENTS)]
    assert seen == list(range(10, layout.MAX_EVENTS + 10))
    pynvml.nvmlEventSetFree(subscribed)


def test_ecc_off_has_no_counters(standin: Standin) -> None:
    standin.set(0, ecc_volatile_uncorrected=3)
    uncorrected, volatile = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    assert pynvml.nvmlDeviceGetTotalEccErrors(handle(0), uncorrected, volatile) == 3
    standin.set(0, ecc_mode=0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEccErrors(handle(0), uncorrected, volatile)


def test_compute_mode_is_seen_by_other_processes(standin: Standin) -> None:
    pynvml.nvmlDeviceSetComputeMode(handle(0), pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    assert standin.state.gpus[0].compute_mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetComputeMode(handle(0), 1)
