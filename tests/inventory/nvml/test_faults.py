"""Every NVML function that the inventory calls, failing in every way: it costs an attribute or that GPU, never more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pynvml
import pytest

from dra_driver.inventory import codes
from dra_driver.inventory.hardware import DriverState, Fabric, Gpu, Machine
from dra_driver.inventory.nvml import NvmlInventory
from tests.inventory.conftest import require_compiler
from tests.standin import Standin

ERRORS = (
    "NOT_SUPPORTED",
    "GPU_IS_LOST",
    "UNKNOWN",
    "FUNCTION_NOT_FOUND",
    "NO_PERMISSION",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "RESET_REQUIRED",
    "ARGUMENT_VERSION_MISMATCH",
    "UNINITIALIZED",
    "LIB_RM_VERSION_MISMATCH",
)

REQUIRED = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetMinorNumber")

OPTIONAL = {
    "nvmlDeviceGetBrand": {"brand"},
    "nvmlDeviceGetArchitecture": {"architecture"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability"},
    "nvmlDeviceGetMemoryInfo": {"memory_bytes"},
    "nvmlDeviceGetEccMode": {"ecc_enabled"},
    "nvmlDeviceGetMigMode": {"mig_enabled", "mig_pending"},
    "nvmlDeviceGetPciInfo_v3": {"pci_bus_id", "pcie_root", "numa_node"},
    "nvmlDeviceGetNvLinkState": {"nvlink_count", "nvlink_version"},
    "nvmlDeviceGetNvLinkVersion": {"nvlink_version"},
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetAddressingMode": {"addressing_mode"},
    "nvmlDeviceGetModuleId": {"module_id"},
    "nvmlDeviceGetSerial": {"serial"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_watts"},
    "nvmlDeviceGetGpuFabricInfoV": {"fabric"},
    "nvmlDeviceGetGpuFabricInfo": {"fabric"},
}

MIG = (
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceGetInfo",
)

DRIVER = (
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
)

ERROR_TEXT = ("nvmlErrorString",)
"""Called to word a failure; it has no way to fail."""

ABSENT = {"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"}


@pytest.fixture(scope="module")
def machine_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Standin, NvmlInventory, Machine]]:
    """One machine for the whole table: two full GPUs and one cut by MIG, and what they are like without faults."""
    require_compiler()
    standin = Standin.create(tmp_path_factory.mktemp("faults") / "machine", "gb200-nvl72", count=3)
    standin.set_mig(2, enabled=True)
    standin.add_mig(2, "1g.23gb", 0)
    standin.add_mig(2, "3g.93gb", 4)
    inventory = NvmlInventory(standin.driver_root, standin.sysfs, standin.proc)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NVML_STANDIN_STATE", str(standin.state_file))
        yield standin, inventory, inventory.discover()
        inventory.close()
    standin.close()


@pytest.fixture
def standin(machine_of_three: tuple[Standin, NvmlInventory, Machine]) -> Iterator[Standin]:
    standin, inventory, baseline = machine_of_three
    yield standin
    standin.heal()
    standin.set(1, fabric_newest=3)
    assert inventory.discover() == baseline, "healed"


@pytest.fixture
def inventory(machine_of_three: tuple[Standin, NvmlInventory, Machine], standin: Standin) -> NvmlInventory:
    return machine_of_three[1]


@pytest.fixture
def baseline(inventory: NvmlInventory) -> Machine:
    return inventory.discover()


def unharmed(machine: Machine, baseline: Machine, *, except_index: int) -> bool:
    def others(from_machine: Machine) -> list[Gpu]:
        return [gpu for gpu in from_machine.gpus if gpu.index != except_index]

    return machine.state is DriverState.READY and others(machine) == others(baseline)


def differing(gpu: Gpu, baseline: Gpu) -> set[str]:
    names = {field.name for field in dataclasses.fields(Gpu)} - {"problems"}
    return {name for name in names if getattr(gpu, name) != getattr(baseline, name)}


def test_the_tables_name_every_function_that_is_called(
    standin: Standin, inventory: NvmlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[str] = set()
    original = pynvml._nvmlGetFunctionPointer

    def recorded(name: str) -> object:
        called.add(name)
        return original(name)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", recorded)
    standin.set(1, fabric_newest=1)
    inventory.close()
    inventory.discover()
    inventory.close()
    assert called == {*REQUIRED, *OPTIONAL, *MIG, *DRIVER, *ERROR_TEXT}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("function", REQUIRED)
def test_required_function_costs_that_gpu(
    standin: Standin, inventory: NvmlInventory, baseline: Machine, function: str, error: str
) -> None:
    standin.fault(function, 1, error)
    machine = inventory.discover()
    assert unharmed(machine, baseline, except_index=1)
    assert [gpu.index for gpu in machine.gpus] == [0, 2]
    (problem,) = machine.problems
    assert (problem.subject, problem.what) == ("gpu-1", "device")
    assert function.removesuffix("_v2") in problem.cause


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("function", OPTIONAL)
def test_optional_function_costs_its_attribute(
    standin: Standin, inventory: NvmlInventory, baseline: Machine, function: str, error: str
) -> None:
    if function == "nvmlDeviceGetGpuFabricInfo":
        standin.set(1, fabric_newest=1)
        baseline = inventory.discover()
    standin.fault(function, 1, error)
    machine = inventory.discover()
    assert unharmed(machine, baseline, except_index=1)
    if error == "GPU_IS_LOST":
        assert [gpu.index for gpu in machine.gpus] == [0, 2]
        (problem,) = machine.problems
        assert problem.subject == "gpu-1"
        assert "lost" in problem.cause
    else:
        gpu = machine.gpus[1]
        assert differing(gpu, baseline.gpus[1]) == OPTIONAL[function]
        if function == "nvmlDeviceGetGpuFabricInfoV" and error in ABSENT - {"NOT_SUPPORTED"}:
            # an old driver: its older function tells everything but the health
            assert gpu.fabric == dataclasses.replace(baseline.gpus[1].fabric or Fabric("none"), health_summary=None)
        else:
            assert all(getattr(gpu, name) in (None, codes.UNKNOWN) for name in OPTIONAL[function])
        silent = error in ABSENT or (function == "nvmlDeviceGetNvLinkState" and error == "INVALID_ARGUMENT")
        assert (gpu.problems == ()) == silent
        assert all(problem.subject == "gpu-1" for problem in gpu.problems)
        assert machine.problems == ()


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("function", MIG)
def test_mig_function_costs_mig_devices_of_that_gpu(
    standin: Standin, inventory: NvmlInventory, baseline: Machine, function: str, error: str
) -> None:
    assert [mig.profile for mig in baseline.gpus[2].mig_instances] == ["1g.23gb", "3g.93gb"]
    standin.fault(function, 2, error)
    machine = inventory.discover()
    assert unharmed(machine, baseline, except_index=2)
    if error == "GPU_IS_LOST":
        assert [problem.subject for problem in machine.problems] == ["gpu-2"]
    else:
        assert machine.gpus[2].mig_instances == ()
        assert differing(machine.gpus[2], baseline.gpus[2]) == {"mig_instances"}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("function", DRIVER)
def test_driver_function_never_raises_and_recovers(
    standin: Standin, inventory: NvmlInventory, baseline: Machine, function: str, error: str
) -> None:
    standin.fault(function, None, error)
    machine = inventory.discover()
    if function.startswith("nvmlSystem"):
        assert machine.state is DriverState.READY
        assert machine.gpus == baseline.gpus
        missing = machine.driver_version if "DriverVersion" in function and "Cuda" not in function else None
        assert missing is None
    elif function == "nvmlDeviceGetCount_v2":
        assert machine.state is not DriverState.READY
        assert "nvmlDeviceGetCount" in machine.reason
    else:  # the open session needs neither init nor shutdown
        assert machine == baseline


@pytest.mark.parametrize("error", [error for error in ERRORS if error != "GPU_IS_LOST"])
def test_one_link_that_can_not_be_asked_makes_the_count_unknown(
    standin: Standin, inventory: NvmlInventory, baseline: Machine, error: str
) -> None:
    assert baseline.gpus[1].nvlink_count == 18
    standin.fault("nvmlDeviceGetNvLinkState", 1, error, times=1)
    gpu = inventory.discover().gpus[1]
    expected = {"NOT_SUPPORTED": 17, "UNINITIALIZED": 18, "LIB_RM_VERSION_MISMATCH": 18}.get(error)
    assert gpu.nvlink_count == expected


def test_a_mig_device_that_vanishes_while_we_look_costs_only_itself(standin: Standin, inventory: NvmlInventory) -> None:
    standin.fault("nvmlDeviceGetAttributes_v2", 2, "NOT_FOUND", times=1)
    gpu = inventory.discover().gpus[2]
    assert [mig.profile for mig in gpu.mig_instances] == ["1g.23gb"]  # the other is enumerated first
    (problem,) = gpu.problems
    assert (problem.subject, problem.what) == ("gpu-2", "MIG device 0")
