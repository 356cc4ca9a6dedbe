"""The hardware changes while the daemon runs."""

from __future__ import annotations

import shutil

import pynvml
import pytest

from dra_driver.inventory.hardware import DriverState
from dra_driver.inventory.nvml import NvmlInventory
from dra_driver.inventory.nvml.patience import Attempt, wait_for
from tests.driver_root.elf import shared_object
from tests.inventory.conftest import MakeInventory, MakeStandin
from tests.standin import Standin


@pytest.fixture
def standin(make_standin: MakeStandin) -> Standin:
    return make_standin("dgx-h100", count=4)


@pytest.fixture
def inventory(standin: Standin, make_inventory: MakeInventory) -> NvmlInventory:
    inventory = make_inventory(standin)
    assert inventory.discover().gpus == standin.machine.gpus
    return inventory


def test_a_second_look_joins_the_session(standin: Standin, inventory: NvmlInventory) -> None:
    opened = standin.count("nvmlInitWithFlags")
    for _ in range(3):
        assert inventory.discover().gpus == standin.machine.gpus
    assert standin.hits(opened) == 0
    assert inventory.session.generation == 1


def test_gpu_plugged_in_and_out(standin: Standin, inventory: NvmlInventory) -> None:
    standin.detach(1)
    assert [gpu.uuid for gpu in inventory.discover().gpus] == [standin.machine.gpus[i].uuid for i in (0, 2, 3)]
    standin.attach(1)
    assert inventory.discover().gpus == standin.machine.gpus


def test_gpu_is_lost_and_comes_back(standin: Standin, inventory: NvmlInventory) -> None:
    standin.lose(2)
    machine = inventory.discover()
    assert [gpu.minor for gpu in machine.gpus] == [0, 1, 3]
    (problem,) = machine.problems
    assert (problem.subject, problem.what) == ("gpu-2", "device")
    assert "GPU is lost" in problem.cause
    assert "NVML index 2" in problem.cause
    assert "XID 79" in problem.hint
    standin.restore(2)
    assert inventory.discover().gpus == standin.machine.gpus


def test_a_lost_gpu_starts_a_new_session_only_now_and_then(standin: Standin, make_inventory: MakeInventory) -> None:
    now = 1000.0
    inventory = make_inventory(standin, lost_retry=300, clock=lambda: now)
    inventory.discover()
    standin.lose(0)
    generations = []
    for seconds in (0, 30, 299, 300, 330, 600):
        now = 1000.0 + seconds
        inventory.discover()
        generations.append(inventory.session.generation)
    assert generations == [2, 2, 2, 3, 3, 4]


def test_driver_is_unloaded_and_loaded_again(standin: Standin, inventory: NvmlInventory) -> None:
    standin.unload()
    machine = inventory.discover()
    assert machine.state is DriverState.NOT_LOADED
    assert machine.gpus == ()
    standin.load()
    machine = inventory.discover()
    assert machine.state is DriverState.READY
    assert machine.gpus == standin.machine.gpus


def test_driver_is_upgraded(standin: Standin, inventory: NvmlInventory) -> None:
    standin.set_driver("590.44.01")
    standin.install(standin.driver_root.path)
    machine = inventory.discover()
    assert (machine.state, machine.driver_version) == (DriverState.READY, "590.44.01")
    assert machine.gpus == standin.machine.gpus


def test_driver_is_upgraded_under_the_session_without_a_trace_in_files(
    standin: Standin, inventory: NvmlInventory
) -> None:
    standin.state.driver_epoch += 1  # the module was loaded anew, same version
    assert inventory.discover().gpus == standin.machine.gpus
    assert inventory.session.generation == 2


def test_half_an_upgrade_keeps_the_open_session_and_stops_new_ones(standin: Standin, inventory: NvmlInventory) -> None:
    standin.set_library_version("590.44.01")
    assert inventory.discover().state is DriverState.READY
    inventory.close()
    assert inventory.discover().state is DriverState.VERSION_MISMATCH


def test_a_library_file_that_was_exchanged_is_loaded(standin: Standin, inventory: NvmlInventory) -> None:
    before = pynvml.nvmlLib
    standin.install(standin.driver_root.path, version="590.44.01")
    assert inventory.discover().gpus == standin.machine.gpus
    assert pynvml.nvmlLib is not before
    assert pynvml.nvmlLib._name.endswith("libnvidia-ml.so.590.44.01")


def test_another_file_under_the_same_name_is_loaded(standin: Standin, inventory: NvmlInventory) -> None:
    """A driver that is installed again: what lay there first is still mapped, and the loader remembers its name."""
    path = standin.driver_root.path / f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{standin.driver_version}"
    path.unlink()
    shutil.copy(shared_object("libnvidia-ml.so.1"), path)
    assert inventory.discover().state is DriverState.FAILED, "a library without functions"
    standin.install(standin.driver_root.path)
    assert inventory.discover().gpus == standin.machine.gpus


def test_library_removed_and_put_back(standin: Standin, inventory: NvmlInventory) -> None:
    link = standin.driver_root.path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    link.unlink()
    assert inventory.discover().state is DriverState.NO_LIBRARY
    standin.install(standin.driver_root.path)
    assert inventory.discover().gpus == standin.machine.gpus


def test_mig_mode_and_mig_devices_change(standin: Standin, inventory: NvmlInventory) -> None:
    standin.set_mig(3, enabled=True)
    assert [gpu.mig_enabled for gpu in inventory.discover().gpus] == [False, False, False, True]
    identity = standin.add_mig(3, "2g.20gb", 4)
    (mig,) = inventory.discover().gpus[3].mig_instances
    assert (mig.uuid, mig.profile, mig.profile_id) == (identity, "2g.20gb", 14)
    assert (mig.placement_start, mig.placement_size) == (4, 2)
    assert (mig.gpu_instance_id, mig.compute_instance_id) == (5, 0)
    assert mig.multiprocessors == 32
    standin.set_mig(3, enabled=False)
    assert inventory.discover().gpus == standin.machine.gpus


def test_mig_profile_is_looked_up_when_the_name_does_not_tell_it(
    standin: Standin, inventory: NvmlInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin.set_mig(0, enabled=True)
    standin.add_mig(0, "1g.10gb+me", 6)
    standin.set(0, name="x" * 90)  # NVML's buffer is too small for the name of the MIG device
    gpu = inventory.discover().gpus[0]
    assert gpu.mig_instances == ()
    assert [problem.what for problem in gpu.problems] == ["MIG device 0"]
    original = pynvml.nvmlDeviceGetName
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda device: original(device).split(" MIG ")[0])
    standin.set(0, name="NVIDIA H100 80GB HBM3")
    assert [mig.profile for mig in inventory.discover().gpus[0].mig_instances] == ["1g.10gb+me"]


def test_minor_number_changes(standin: Standin, inventory: NvmlInventory) -> None:
    standin.set(1, minor=9)
    assert [gpu.minor for gpu in inventory.discover().gpus] == [0, 9, 2, 3]


def test_silent_gpu_costs_no_other_and_keeps_its_place(standin: Standin, make_inventory: MakeInventory) -> None:
    hung = 2

    def wait(attempt: Attempt[object], seconds: float) -> bool:
        # a clock would make this test depend on the machine's load
        return False if attempt.key == hung and silent else wait_for(attempt, 60)

    silent = False
    inventory = make_inventory(standin, wait=wait, gpu_patience=5)
    assert inventory.discover().gpus == standin.machine.gpus
    silent = True
    delay = standin.delay("nvmlDeviceGetSerial", hung, 3600)
    calls = standin.count("nvmlDeviceGetUUID", hung)
    for _ in range(3):
        machine = inventory.discover()
        assert [gpu.index for gpu in machine.gpus] == [0, 1, 3]
        (problem,) = machine.problems
        assert problem.subject == "gpu-2"
        assert problem.cause == "GPU at NVML index 2 does not answer (waited 5 s)"
    assert standin.hits(calls) == 1, "no second call is sent after one that hangs"
    standin.unload()
    assert inventory.discover().state is DriverState.NOT_LOADED
    assert inventory.session.is_open, "the session is not ended under a call that hangs"
    standin.load()
    standin.remove(delay)
    silent = False
    (stuck,) = inventory._patience._stuck.values()
    assert stuck.done.wait(60)
    assert inventory.discover().gpus == standin.machine.gpus


def test_driver_that_does_not_answer(standin: Standin, make_inventory: MakeInventory) -> None:
    silent = True
    inventory = make_inventory(
        standin, driver_patience=5, wait=lambda attempt, seconds: not silent and wait_for(attempt, 60)
    )
    delay = standin.delay("nvmlInitWithFlags", None, 3600)
    for _ in range(2):
        machine = inventory.discover()
        assert machine.state is DriverState.FAILED
        assert machine.reason == "the NVIDIA driver has not answered for 5 s"
        assert "kernel log" in machine.hint
    standin.remove(delay)
    silent = False
    (stuck,) = inventory._patience._stuck.values()
    assert stuck.done.wait(60)
    assert inventory.discover().gpus == standin.machine.gpus


def test_handles_are_looked_up_once(standin: Standin, inventory: NvmlInventory) -> None:
    lookups = standin.count("nvmlDeviceGetHandleByUUID")
    for gpu in standin.machine.gpus:
        with inventory.session.handle(gpu.uuid) as handle:
            assert handle
    assert standin.hits(lookups) == 0, "discovery has cached them"
    standin.set_mig(0, enabled=True)
    identity = standin.add_mig(0, "1g.10gb", 0)
    for _ in range(2):
        with inventory.session.handle(identity):
            pass
    assert standin.hits(lookups) == 1


def test_a_lent_handle_keeps_the_session(standin: Standin, inventory: NvmlInventory) -> None:
    with inventory.session.handle(standin.machine.gpus[0].uuid):
        standin.detach(3)
        assert len(inventory.discover().gpus) == 4
        inventory.close()
        assert inventory.session.is_open
    assert len(inventory.discover().gpus) == 3
