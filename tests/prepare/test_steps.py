"""Devices whose preparation changes the node: written ahead, taken back, verified."""

from __future__ import annotations

import pytest

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.model.prepared import PreparedDevice
from dra_driver.prepare.steps import Step, WholeGpu
from tests.prepare.node import BOOT, Killed, Node, claim, gpu_config, opaque, ref, result


@pytest.fixture
def parts(node: Node) -> Node:
    node.with_partitions("part-0", "part-1")
    node.api.add(claim("c", result("part-0")))
    return node


async def test_the_plan_is_durable_before_the_first_step(parts: Node) -> None:
    answer = await parts.prepare("c")
    assert answer == (PreparedDevice(("gpu",), "node-a", "part-0", ("k8s.gpu.nvidia.com/claim=uid-c-part-0",)),)
    assert parts.changes.trace == [
        "write record uid-c.json",
        "apply make",
        "applied make",
        "apply serve",
        "applied serve",
        "write spec k8s.gpu.nvidia.com-claim_uid-c.json",
        "remove spec k8s.gpu.nvidia.com-claim_uid-c.yaml",
        "write record uid-c.json",
    ]
    (record,) = parts.records.all()
    assert [(step.action, step.outcome) for step in record.steps] == [
        ("make", {"id": "make part-0"}),
        ("serve", {"id": "serve part-0"}),
    ]
    assert b"PARTITION=make part-0,serve part-0" in (parts.cdi / record.cdi_file).read_bytes()
    assert await parts.unprepare("c") is None
    assert parts.leftovers() == []


async def test_devices_with_one_configuration_are_planned_together(parts: Node) -> None:
    parts.api.add(claim("c", result("part-0"), result("gpu-0"), result("part-1")))
    assert [device.device for device in await parts.prepare("c")] == ["part-0", "gpu-0", "part-1"]
    assert sorted(parts.world) == ["make part-0", "make part-1", "serve part-0", "serve part-1"]


async def test_again_verifies_every_effect(parts: Node) -> None:
    first = await parts.prepare("c")
    assert await parts.prepare("c") == first
    assert parts.api.reads == 1
    del parts.world["serve part-0"]
    assert await parts.prepare("c") == first
    assert parts.api.reads == 2
    assert sorted(parts.world) == ["make part-0", "serve part-0"]


async def test_effects_that_are_there_are_kept_when_only_the_spec_is_lost(parts: Node) -> None:
    first = await parts.prepare("c")
    for file in parts.cdi.iterdir():
        file.unlink()
    parts.changes.trace.clear()
    assert await parts.prepare("c") == first
    assert not [change for change in parts.changes.trace if change.startswith(("apply", "undo"))]


async def test_effects_of_another_plan_are_taken_back_first(parts: Node) -> None:
    await parts.prepare("c")
    for file in parts.cdi.iterdir():
        file.unlink()
    parts.api.add(claim("c", result("part-1")))
    assert [device.device for device in await parts.prepare("c")] == ["part-1"]
    assert sorted(parts.world) == ["make part-1", "serve part-1"]
    for file in parts.cdi.iterdir():
        file.unlink()
    parts.api.add(claim("c", result("gpu-0")))
    assert [device.device for device in await parts.prepare("c")] == ["gpu-0"]
    assert parts.world == {}
    assert parts.records.all()[0].steps == ()


async def test_an_observer_changes_nothing(parts: Node) -> None:
    parts.api.add(claim("watch", result("part-0", admin_access=True)))
    assert len(await parts.prepare("watch")) == 1
    assert parts.world == {}


@pytest.mark.parametrize("action", ["make", "serve"])
async def test_a_step_that_fails_takes_back_the_others(parts: Node, action: str) -> None:
    parts.partitions.fail_apply = action
    answer = str(await parts.prepare("c"))
    assert answer.startswith(
        f"ResourceClaim default/c: step {action}(device=part-0, claim=uid-c) failed: {action} refused"
    )
    assert parts.leftovers() == []
    parts.partitions.fail_apply = None
    assert len(await parts.prepare("c")) == 1


async def test_a_step_that_can_not_be_taken_back_stays_in_the_record(parts: Node) -> None:
    parts.partitions.fail_apply = "serve"
    parts.partitions.fail_undo = "make"
    answer = str(await parts.prepare("c"))
    assert "serve refused by the hardware; taking it back failed too: step make(" in answer
    assert "make is in use by another client" in answer
    (record,) = parts.records.all()
    assert record.state == "started"
    parts.api.add(claim("d", result("part-0")))
    assert "already prepared for ResourceClaim default/c" in str(await parts.prepare("d"))
    error = await parts.unprepare("c")
    assert "step make(device=part-0, claim=uid-c) can't be taken back: make is in use" in str(error)
    parts.partitions.fail_undo = None
    assert await parts.unprepare("c") is None
    assert parts.leftovers() == []
    parts.partitions.fail_apply = None
    assert len(await parts.prepare("d")) == 1


async def test_a_failure_after_the_steps_takes_them_back(parts: Node) -> None:
    parts.specs.fail = EnvironmentFault("cannot write CDI spec: No space left on device")
    assert "No space left on device" in str(await parts.prepare("c"))
    assert parts.leftovers() == []


async def test_a_failure_while_cleaning_up_is_told_with_the_first(parts: Node) -> None:
    parts.specs.fail = EnvironmentFault("cannot write CDI spec: No space left on device")
    parts.partitions.fail_undo = "serve"
    answer = str(await parts.prepare("c"))
    assert "No space left on device; and cleaning up after it failed: step serve(" in answer
    assert parts.records.all()[0].state == "started"
    parts.specs.fail = None
    parts.partitions.fail_undo = None
    assert len(await parts.prepare("c")) == 1


async def test_unprepare_reports_a_device_in_use_and_keeps_everything(parts: Node) -> None:
    await parts.prepare("c")
    parts.partitions.fail_undo = "serve"
    before = parts.leftovers()
    assert "serve is in use by another client" in str(await parts.unprepare("c"))
    assert parts.leftovers() == before
    parts.partitions.fail_undo = None
    assert await parts.unprepare("c") is None


async def test_after_a_reboot_nothing_is_taken_back(parts: Node) -> None:
    await parts.prepare("c")
    await parts.restart(boot_id="boot-2")
    parts.world["make part-0"] = "uid-c"  # somebody else's, made in this boot
    assert await parts.unprepare("c") is None
    assert parts.world == {"make part-0": "uid-c"}
    assert "undo make" not in parts.changes.trace


async def test_a_step_of_a_newer_version_is_not_guessed_at(parts: Node) -> None:
    await parts.prepare("c")
    record = parts.records.all()[0]
    parts.records.put(
        type(record)(
            ref=record.ref,
            state="completed",
            boot_id=BOOT,
            devices=record.devices,
            steps=(Step(preparer="quantum", action="entangle"),),
            cdi_file=record.cdi_file,
            cdi_sha256=record.cdi_sha256,
        )
    )
    error = str(await parts.unprepare("c"))
    assert "step entangle() was taken by a version of the driver that prepares devices of kind 'quantum'" in error


PREPARE_CHANGES = 8
UNPREPARE_CHANGES = 7


@pytest.mark.parametrize("changes", range(PREPARE_CHANGES + 1))
@pytest.mark.parametrize("then", ["prepare", "unprepare", "another claim"])
async def test_killed_while_preparing(parts: Node, changes: int, then: str) -> None:
    parts.kill_at(changes)
    if changes < PREPARE_CHANGES:
        with pytest.raises(Killed):
            await parts.prepare("c")
    else:
        await parts.prepare("c")
    await parts.restart()
    if then == "prepare":
        assert len(await parts.prepare("c")) == 1
        assert sorted(parts.world) == ["make part-0", "serve part-0"]
        assert len(parts.leftovers()) == 4
    elif then == "another claim":
        parts.api.delete("c")
        parts.api.add(claim("d", result("part-0")))
        assert len(await parts.prepare("d")) == 1
        assert parts.world == {"make part-0": "uid-d", "serve part-0": "uid-d"}
        assert await parts.unprepare("d") is None
    assert await parts.unprepare("c") is None
    assert parts.leftovers() == []


@pytest.mark.parametrize("changes", range(UNPREPARE_CHANGES + 1))
@pytest.mark.parametrize("then", ["prepare", "unprepare"])
async def test_killed_while_unpreparing(parts: Node, changes: int, then: str) -> None:
    await parts.prepare("c")
    parts.kill_at(changes)
    if changes < UNPREPARE_CHANGES:
        with pytest.raises(Killed):
            await parts.unprepare("c")
    else:
        assert await parts.unprepare("c") is None
    await parts.restart()
    if then == "prepare":
        assert len(await parts.prepare("c")) == 1
        assert sorted(parts.world) == ["make part-0", "serve part-0"]
    assert await parts.unprepare("c") is None
    assert parts.leftovers() == []


async def test_a_kind_without_a_preparer(node: Node) -> None:
    node.with_partitions("part-0")
    node.service = node.service.__class__(
        driver="gpu.nvidia.com",
        pool="node-a",
        claims=node.api,
        devices=lambda: node.devices,
        edits=node.edits,
        specs=node.specs,
        records=node.records,
    )
    config = opaque(gpu_config(), "gpu", source="FromClass")
    node.api.add(claim("c", result("part-0")), claim("d", result("part-0"), config=[config]))
    answers = await node.service.prepare([ref("c"), ref("d")])
    assert isinstance(answers["uid-c"], InputError)
    assert str(answers["uid-c"]).startswith(
        "ResourceClaim default/c: status.allocation.devices.results[0]: not supported by this version: device part-0 of"
        " kind part (request gpu, configured by default)"
    )
    assert "GpuConfig (FromClass) can't be applied to device part-0 of kind part of request gpu" in str(
        answers["uid-d"]
    )
    await node.service.close()


def test_whole_gpus_have_no_steps() -> None:
    step = Step(preparer="gpu", action="x", arguments={"a": 1})
    assert WholeGpu().verify(step) == "whole GPUs have no step x(a=1)"
