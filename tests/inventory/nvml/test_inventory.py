"""Machines as NVML tells them, through the real pynvml and the stand-in library."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dra_driver.inventory import profile
from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.hardware import DriverState, Fabric
from dra_driver.inventory.nvml import NvmlInventory
from dra_driver.inventory.nvml import inventory as nvml_inventory
from tests.inventory.conftest import MakeInventory, MakeStandin


@pytest.mark.parametrize("name", profile.names())
def test_every_described_machine_is_found_as_described(
    make_standin: MakeStandin, make_inventory: MakeInventory, name: str
) -> None:
    standin = make_standin(name)
    machine = make_inventory(standin).discover()
    assert machine.state is DriverState.READY
    assert machine.problems == ()
    assert machine.gpus == standin.machine.gpus
    assert (machine.driver_version, machine.cuda_driver_version) == ("580.95.05", (13, 0))
    assert (machine.source, machine.described, machine.reason) == ("nvml", False, "")


@pytest.mark.parametrize(
    ("field", "value", "attribute", "expected"),
    [
        pytest.param("memory_total", 0, "memory_bytes", None, id="unified-memory"),
        pytest.param("module_id", None, "module_id", None, id="no-module-id"),
        pytest.param("addressing_mode", None, "addressing_mode", None, id="addressing-mode-not-supported"),
        pytest.param("addressing_mode", 2, "addressing_mode", "ATS", id="ats"),
        pytest.param("ecc_mode", None, "ecc_enabled", None, id="no-ecc"),
        pytest.param("ecc_mode", 0, "ecc_enabled", False, id="ecc-off"),
        pytest.param("mig_capable", 0, "mig_enabled", None, id="not-mig-capable"),
        pytest.param("mig_pending", 1, "mig_pending", True, id="mig-after-the-next-reset"),
        pytest.param("serial", None, "serial", None, id="no-serial"),
        pytest.param("name", None, "name", None, id="no-name"),
        pytest.param("power_limit_mw", None, "power_limit_watts", None, id="no-power-limit"),
        pytest.param("power_limit_mw", 349_999, "power_limit_watts", 350, id="power-limit-is-rounded"),
        pytest.param("power_limit_mw", 350_499, "power_limit_watts", 350, id="power-limit-is-rounded-down"),
        pytest.param("brand", 99, "brand", "Unknown", id="newer-brand"),
        pytest.param("architecture", 99, "architecture", "Unknown", id="newer-architecture"),
        pytest.param("compute_major", 12, "compute_capability", (12, 0), id="compute-capability"),
        pytest.param("nvlink_count", 0, "nvlink_count", None, id="no-links"),
        pytest.param("nvlink_version", 8, "nvlink_version", "6.0", id="nvlink-6"),
        pytest.param("nvlink_version", 4, "nvlink_version", "3.0", id="the-code-is-not-the-version"),
        pytest.param("minor", 42, "minor", 42, id="minor-is-not-the-index"),
    ],
)
def test_fact(
    make_standin: MakeStandin,
    make_inventory: MakeInventory,
    field: str,
    value: int | None,
    attribute: str,
    expected: object,
) -> None:
    standin = make_standin("dgx-h100", count=2)
    standin.set(1, **{field: value})
    machine = make_inventory(standin).discover()
    assert getattr(machine.gpus[1], attribute) == expected
    assert machine.gpus[1].problems == ()
    assert machine.gpus[0] == standin.machine.gpus[0]


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("addressing_mode", 7, "addressingMode"),
        ("nvlink_version", 77, "nvlinkVersion"),
        ("fabric_state", 9, "fabricState"),
    ],
)
def test_a_code_that_is_newer_than_this_release_is_a_problem_not_a_guess(
    make_standin: MakeStandin, make_inventory: MakeInventory, field: str, value: int, what: str
) -> None:
    standin = make_standin("dgx-h100", count=1)
    standin.set(0, **{field: value})
    (gpu,) = make_inventory(standin).discover().gpus
    (problem,) = gpu.problems
    assert (problem.subject, problem.what) == ("gpu-0", what)
    assert str(value) in problem.cause
    assert {"addressingMode": gpu.addressing_mode, "nvlinkVersion": gpu.nvlink_version, "fabricState": gpu.fabric}[
        what
    ] is None


def test_only_enabled_links_count(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("dgx-h100", count=3)
    for link in (0, 17):
        standin.set_nvlink(0, link, active=False)
    for link in range(18):
        standin.set_nvlink(1, link, active=False)
    gpus = make_inventory(standin).discover().gpus
    assert [(gpu.nvlink_count, gpu.nvlink_version) for gpu in gpus] == [(16, "4.0"), (0, None), (18, "4.0")]


def test_links_are_down_in_mig_mode(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    gpu = make_inventory(make_standin("dgx-h100", count=1, mig=True)).discover().gpus[0]
    assert (gpu.mig_enabled, gpu.nvlink_count, gpu.nvlink_version) == (True, 0, None)


CLUSTER = "8a3f9c1e-0000-4000-8000-0123456789ab"


@pytest.mark.parametrize("newest", [1, 2, 3])
def test_fabric_is_read_from_drivers_of_every_age(
    make_standin: MakeStandin, make_inventory: MakeInventory, newest: int
) -> None:
    standin = make_standin("gb200-nvl72", count=1)
    standin.set_fabric(0, CLUSTER, 5, fabric_newest=newest, fabric_health_summary=3)
    gpu = make_inventory(standin).discover().gpus[0]
    assert gpu.fabric == Fabric(
        state="completed",
        status=0,
        cluster_uuid=CLUSTER,
        clique_id=5,
        health_summary=3 if newest == 3 else None,
    )
    assert gpu.problems == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"fabric_state": None}, None, id="not-supported"),
        pytest.param({"fabric_state": 0}, None, id="state-not-supported"),
        pytest.param({"fabric_state": 1}, Fabric("not-started", 0, None, None, 1), id="not-started"),
        pytest.param({"fabric_state": 2}, Fabric("in-progress", 0, None, None, 1), id="in-progress"),
        pytest.param({}, Fabric("completed", 0, CLUSTER, 5, 1), id="completed"),
        pytest.param({"fabric_status": 999}, Fabric("completed", 999, None, None, 1), id="registration-failed"),
        pytest.param({"fabric_health_summary": 2}, Fabric("completed", 0, CLUSTER, 5, 2), id="unhealthy"),
        pytest.param({"fabric_health_summary": 0}, Fabric("completed", 0, CLUSTER, 5, None), id="health-unknown"),
    ],
)
def test_fabric_registration(
    make_standin: MakeStandin, make_inventory: MakeInventory, fields: dict[str, int | None], expected: Fabric | None
) -> None:
    standin = make_standin("gb200-nvl72", count=1)
    standin.set_fabric(0, CLUSTER, 5, fabric_health_summary=1)
    standin.set(0, **fields)
    assert make_inventory(standin).discover().gpus[0].fabric == expected


def test_single_node_fabric_has_no_cluster(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("dgx-h100", count=1)
    standin.set_fabric(0, None, 0)
    assert make_inventory(standin).discover().gpus[0].fabric == Fabric("completed", 0, None, 0, 1)


def test_pci_address_beyond_sysfs_costs_only_what_sysfs_tells(
    make_standin: MakeStandin, make_inventory: MakeInventory
) -> None:
    standin = make_standin("dgx-h100", count=2)
    standin.set(1, pci_bus=0x77)
    machine = make_inventory(standin).discover()
    gpu = machine.gpus[1]
    assert (gpu.pci_bus_id, gpu.pcie_root, gpu.numa_node) == ("0000:77:00.0", None, None)
    assert [problem.what for problem in gpu.problems] == ["pcieRoot", "numaNode"]
    assert all("0000:77:00.0" in problem.cause and problem.subject == "gpu-1" for problem in gpu.problems)
    assert machine.gpus[0] == standin.machine.gpus[0]


def test_name_that_is_not_utf8_costs_the_name(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("t4", count=1)
    standin.set(0, name=b"Tesla \xff4")
    (gpu,) = make_inventory(standin).discover().gpus
    assert gpu.name is None
    assert [(problem.what, "UTF-8" in problem.cause) for problem in gpu.problems] == [("productName", True)]


def test_two_gpus_with_one_identity_are_not_both_offered(
    make_standin: MakeStandin, make_inventory: MakeInventory
) -> None:
    standin = make_standin("dgx-h100", count=3)
    standin.set(2, minor=0)
    machine = make_inventory(standin).discover()
    assert [gpu.index for gpu in machine.gpus] == [0, 1]
    (problem,) = machine.problems
    assert problem.subject == "GPU index 2"
    assert "told twice" in problem.cause


def test_looks_may_run_side_by_side(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    standin = make_standin("dgx-h100", count=4)
    inventory = make_inventory(standin)
    with ThreadPoolExecutor(6) as pool:
        machines = [future.result() for future in [pool.submit(inventory.discover) for _ in range(12)]]
    assert {machine.gpus for machine in machines} == {standin.machine.gpus}


def test_module_ids_are_not_mixed_up_between_threads(make_standin: MakeStandin, make_inventory: MakeInventory) -> None:
    # pynvml keeps the answer in a default argument that all calls share
    standin = make_standin("dgx-h100")
    standin.delay("nvmlDeviceGetModuleId", None, 0.005)
    for _ in range(3):
        assert [gpu.module_id for gpu in make_inventory(standin).discover().gpus] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_driver_root_may_be_looked_for_at_every_look(make_standin: MakeStandin, tmp_path: Path) -> None:
    standin = make_standin("t4", count=1)
    late = tmp_path / "late"
    inventory = NvmlInventory(lambda: DriverRoot.probe([DriverRoot(late)]), standin.sysfs, standin.proc)
    try:
        machine = inventory.discover()
        assert machine.state is DriverState.NO_LIBRARY
        assert str(late) in machine.reason
        assert "--driver-root" in machine.hint
        assert inventory.driver_root is None
        standin.install(late)
        assert inventory.discover().gpus == standin.machine.gpus
        assert inventory.driver_root == DriverRoot(late)
    finally:
        inventory.close()


def test_closing_does_not_wait_for_a_look_that_hangs(
    make_standin: MakeStandin, make_inventory: MakeInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_inventory, "CLOSE_PATIENCE_SECONDS", 0.01)
    standin = make_standin("t4", count=1)
    inventory = make_inventory(standin)
    inventory.discover()
    counted = standin.count("nvmlDeviceGetCount")
    hanging = standin.delay("nvmlDeviceGetCount", None, 3600.0)
    look = threading.Thread(target=inventory.discover)
    look.start()
    try:
        while not standin.hits(counted):
            time.sleep(0.005)
        closing = threading.Thread(target=inventory.close)
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
        assert look.is_alive(), "it has not ended, and was not waited for"
        assert inventory.session.is_open, "ending it under a call could crash the process"
    finally:
        standin.remove(hanging)
        look.join()
    inventory.close()
    assert not inventory.session.is_open
