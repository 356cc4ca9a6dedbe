"""Prepare and unprepare as the kubelet calls them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_driver.devices.allocatable import allocatable_devices
from dra_driver.errors import DraDriverError, EnvironmentFault, InputError, InternalError
from dra_driver.inventory.hardware import DriverState, Machine, Problem
from dra_driver.model.prepared import PreparedDevice
from dra_driver.model.resource import ResourceClaim
from tests.prepare.node import Node, claim, gpu_config, machine, opaque, ref, result


def spec(node: Node, uid: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((node.cdi / f"k8s.gpu.nvidia.com-claim_{uid}.json").read_bytes())
    return content


async def test_one_claim(node: Node) -> None:
    node.api.add(claim("c", result("gpu-2", request="gpu/big")))
    assert await node.prepare("c") == (
        PreparedDevice(("gpu",), "node-a", "gpu-2", ("k8s.gpu.nvidia.com/claim=uid-c-gpu-2",)),
    )
    assert spec(node, "uid-c") == {
        "cdiVersion": "0.3.0",
        "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [{"name": "uid-c-gpu-2", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia2"}]}}],
        "containerEdits": {"env": ["DRIVER=1"]},
    }
    (record,) = node.records.all()
    assert record.ref == ref("c")
    assert record.state == "completed"
    assert record.devices[0].identity == "GPU-2"
    content = (node.cdi / record.cdi_file).read_bytes()
    assert record.cdi_sha256 == hashlib.sha256(content).hexdigest()
    assert node.changes.trace == [
        "write spec k8s.gpu.nvidia.com-claim_uid-c.json",
        "remove spec k8s.gpu.nvidia.com-claim_uid-c.yaml",
        "write record uid-c.json",
    ], "one durable write, after the spec"
    assert [(done.operation, done.outcome) for done in node.done] == [("prepare", "ok")]


async def test_shares_have_names_of_their_own(node: Node) -> None:
    node.api.add(claim("c", result(share_id="s1"), result(share_id="s2")), claim("d", result(share_id="s3")))
    assert [(d.cdi_ids, d.share_id) for d in await node.prepare("c")] == [
        (("k8s.gpu.nvidia.com/claim=uid-c-gpu-0-s1",), "s1"),
        (("k8s.gpu.nvidia.com/claim=uid-c-gpu-0-s2",), "s2"),
    ]
    assert [device["name"] for device in spec(node, "uid-c")["devices"]] == ["uid-c-gpu-0-s1", "uid-c-gpu-0-s2"]
    assert [d.share_id for d in await node.prepare("d")] == ["s3"]


async def test_a_claim_of_other_drivers_only_is_answered_with_nothing(node: Node) -> None:
    node.api.add(claim("c", result(driver="net.example")))
    assert await node.prepare("c") == ()
    assert node.leftovers() == []
    assert await node.unprepare("c") is None


async def test_again_is_answered_without_the_api_server(node: Node) -> None:
    node.api.add(claim("c"))
    first = await node.prepare("c")
    node.api.down = EnvironmentFault("connection refused")
    changes = node.changes.count
    assert await node.prepare("c") == first
    assert (node.api.reads, node.changes.count) == (1, changes)
    assert [done.outcome for done in node.done] == ["ok", "recorded"]
    await node.restart()
    assert await node.prepare("c") == first
    assert node.api.reads == 1


async def test_the_answer_from_a_record_counts_only_with_its_spec(node: Node) -> None:
    node.api.add(claim("c"))
    first = await node.prepare("c")
    path = node.cdi / "k8s.gpu.nvidia.com-claim_uid-c.json"
    good = path.read_bytes()
    for damage in (None, b"{}", good[:-1]):
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
        assert await node.prepare("c") == first
        assert path.read_bytes() == good
    assert node.api.reads == 4
    assert node.changes.trace.count("write record uid-c.json") == 1, "the record was right all the time"


async def test_a_spec_is_made_again_from_what_is_true_now(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    (node.cdi / "k8s.gpu.nvidia.com-claim_uid-c.json").unlink()
    node.edits.marker = "2"
    await node.prepare("c")
    assert spec(node, "uid-c")["containerEdits"] == {"env": ["DRIVER=2"]}
    reads = node.api.reads
    await node.prepare("c")
    assert node.api.reads == reads, "the new record holds"


async def test_a_spec_that_is_lost_after_the_claim_went_away_stays_lost(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    (node.cdi / "k8s.gpu.nvidia.com-claim_uid-c.json").unlink()
    node.api.delete("c")
    assert "ResourceClaim default/c: GET resourceclaims default/c: not found" in str(await node.prepare("c"))
    assert await node.unprepare("c") is None
    assert node.leftovers() == []


async def test_another_gpu_of_the_same_name_is_another_device(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    known = machine(0)
    node.devices = allocatable_devices(replace(known, gpus=(replace(known.gpus[0], uuid="GPU-new"),)))
    await node.prepare("c")
    assert node.records.all()[0].devices[0].identity == "GPU-new"


async def test_nvidias_own_spec_of_the_claim_goes(node: Node) -> None:
    old = node.cdi / "k8s.gpu.nvidia.com-claim_uid-c.yaml"
    node.api.add(claim("c"))
    old.write_text("cdiVersion: 0.5.0\n")
    await node.prepare("c")
    assert not old.exists(), "two specs of one name are a conflict for the runtime"
    old.write_text("cdiVersion: 0.5.0\n")
    assert await node.unprepare("c") is None
    assert node.leftovers() == []


async def test_claims_of_one_call_are_read_at_the_same_time_and_fail_alone(node: Node) -> None:
    node.api.gate = asyncio.Event()
    node.api.add(claim("a", result("gpu-0")), claim("b", result("gpu-9")), claim("c", result("gpu-1")))
    call = asyncio.create_task(node.service.prepare([ref("a"), ref("b"), ref("c"), ref("a")]))
    while node.api.reads < 3:
        await asyncio.sleep(0)
    node.api.gate.set()
    answers = await call
    assert list(answers) == ["uid-a", "uid-b", "uid-c"]
    assert answers["uid-a"][0].device == "gpu-0"  # type: ignore[index]
    assert isinstance(answers["uid-b"], EnvironmentFault)
    assert answers["uid-c"][0].device == "gpu-1"  # type: ignore[index]
    assert node.api.reads == 3


async def test_no_claims(node: Node) -> None:
    assert await node.service.prepare([]) == {}
    assert await node.service.unprepare([]) == {}


async def test_a_retry_gets_the_answer_of_the_running_call(node: Node) -> None:
    node.api.gate = asyncio.Event()
    node.api.add(claim("c"))
    first = asyncio.create_task(node.prepare("c"))
    while not node.api.reads:
        await asyncio.sleep(0)
    first.cancel()  # the kubelet gave up after its 45 s
    second, third = asyncio.create_task(node.prepare("c")), asyncio.create_task(node.prepare("c"))
    await asyncio.sleep(0)
    node.api.gate.set()
    assert await second == await third
    assert node.api.reads == 1
    assert len(node.records.all()) == 1


async def test_an_unprepare_does_not_wait_for_the_api_server(node: Node) -> None:
    node.api.gate = asyncio.Event()
    node.api.add(claim("c"))
    running = asyncio.create_task(node.prepare("c"))
    while not node.api.reads:
        await asyncio.sleep(0)
    assert await node.unprepare("c") is None
    answer = await running
    assert str(answer).startswith("ResourceClaim default/c was unprepared while it was being prepared")
    assert node.leftovers() == []


async def test_a_prepare_after_an_unprepare_is_judged_anew(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    assert await node.unprepare("c") is None
    node.api.add(claim("c", reserved=False))
    assert "is allocated but reserved for nobody" in str(await node.prepare("c"))
    assert node.leftovers() == []


async def test_the_api_server_is_not_waited_for_longer_than_the_kubelet_waits(tmp_path: Path) -> None:
    node = Node(tmp_path, claim_read_seconds=0.01)
    node.api.gate = asyncio.Event()
    await node.service.start()
    assert "the API server did not answer within" in str(await node.prepare("c"))
    await node.service.close()


# --- refusals


async def fails(node: Node, name: str = "c") -> str:
    """Prepare, expecting an error that leaves nothing and is reported."""
    answer = await node.prepare(name)
    assert isinstance(answer, DraDriverError), answer
    assert node.leftovers() == []
    assert node.failures[-1][0] == ref(name)
    assert node.failures[-1][2] is answer
    assert node.done[-1].error is answer
    assert node.done[-1].outcome == "error"
    return str(answer)


REFUSED: dict[str, tuple[ResourceClaim | None, str]] = {
    "gone": (None, "ResourceClaim default/c: GET resourceclaims default/c: not found"),
    "replaced": (claim("c", uid="new"), "ResourceClaim default/c got replaced"),
    "not allocated": (claim("c", allocated=False), "ResourceClaim default/c (UID uid-c) is not allocated"),
    "wrong pool": (claim("c", result(pool="b")), "ResourceClaim default/c: request gpu: device gpu-0 is in pool 'b'"),
    "no such device": (
        claim("c", result("gpu-9")),
        "ResourceClaim default/c: request gpu: device gpu-9 does not exist on node node-a, which has gpu-0, gpu-1,"
        " gpu-2, gpu-3 (looked at 12 s ago)",
    ),
    "sharing": (
        claim("c", config=[opaque(gpu_config(sharing={"strategy": "MPS"}), "gpu", source="FromClass")]),
        "ResourceClaim default/c: status.allocation.devices.config[0].opaque.parameters.sharing: not supported by this"
        " version: Mps sharing of whole GPUs (request gpu, source FromClass)",
    ),
    "unknown kind": (
        claim("c", config=[opaque({**gpu_config(), "kind": "ComputeDomainChannelConfig"})]),
        "ResourceClaim default/c: status.allocation.devices.config[0].opaque.parameters.kind: unknown configuration",
    ),
}


@pytest.mark.parametrize(("item", "text"), REFUSED.values(), ids=REFUSED)
async def test_refused(node: Node, item: ResourceClaim | None, text: str) -> None:
    if item is not None:
        node.api.add(item)
    assert (await fails(node)).startswith(text)
    assert node.failures[0][1] is item
    assert await node.unprepare("c") is None


async def test_a_plain_configuration_is_accepted(node: Node) -> None:
    node.api.add(claim("c", config=[opaque(gpu_config()), opaque({"kind": "x"}, driver="net.example")]))
    assert [device.device for device in await node.prepare("c")] == ["gpu-0"]


async def test_an_observer_is_not_refused_for_a_configuration_that_would_change_the_device(node: Node) -> None:
    sharing = opaque(gpu_config(sharing={"strategy": "MPS"}))
    node.api.add(claim("c", result(admin_access=True), config=[sharing]))
    assert [device.device for device in await node.prepare("c")] == ["gpu-0"]


async def test_a_missing_device_makes_us_look_at_the_hardware(node: Node) -> None:
    node.api.add(claim("c", result("gpu-9")), claim("d"))
    await fails(node)
    assert node.looks == 1
    await node.prepare("d")
    assert node.looks == 1


MACHINES: dict[str, tuple[Machine | None, str]] = {
    "not looked at": (None, "device gpu-0 can't be prepared yet: the hardware of this node has not been looked at"),
    "driver unloaded": (
        Machine(state=DriverState.NOT_LOADED, source="nvml", reason="the NVIDIA kernel module is not loaded"),
        "device gpu-0 is not available on node node-a: the NVIDIA kernel module is not loaded (looked at 12 s ago)",
    ),
    "lost": (
        machine(1, problems=(Problem("gpu-0", "device", "GPU is lost (Xid 79)"),)),
        "device gpu-0 is not available on node node-a: GPU is lost (Xid 79) (looked at 12 s ago)",
    ),
    "no GPU": (machine(), "device gpu-0 does not exist on node node-a, which has no devices (looked at 12 s ago)"),
}


@pytest.mark.parametrize(("hardware", "text"), MACHINES.values(), ids=MACHINES)
async def test_devices_that_are_not_there(node: Node, hardware: Machine | None, text: str) -> None:
    node.devices = allocatable_devices(hardware) if hardware is not None else None
    node.api.add(claim("c"))
    assert (await fails(node)).startswith(f"ResourceClaim default/c: request gpu: {text}")


async def test_a_missing_device_node_is_said_with_the_claim(node: Node) -> None:
    node.api.add(claim("c"))
    node.edits.fail = EnvironmentFault("GPU gpu-0: its device node /dev/nvidia0 does not exist", hint="run nvidia-smi")
    assert await fails(node) == (
        "ResourceClaim default/c: GPU gpu-0: its device node /dev/nvidia0 does not exist (run nvidia-smi)"
    )


@pytest.mark.parametrize("what", ["specs", "files"])
async def test_a_full_disk(node: Node, what: str) -> None:
    node.api.add(claim("c"))
    layer: Any = getattr(node, what)
    layer.fail = EnvironmentFault("cannot write x: No space left on device", hint="free space")
    answer = str(await node.prepare("c"))
    assert answer.startswith("ResourceClaim default/c: cannot write x: No space left on device (free space)")
    layer.fail = None
    assert len(await node.prepare("c")) == 1
    assert await node.unprepare("c") is None
    assert node.leftovers() == []


async def test_a_cdi_folder_that_can_not_be_written(node: Node) -> None:
    node.api.add(claim("c"))
    node.cdi.rmdir()
    node.cdi.write_text("a file in its place")
    answer = str(await node.prepare("c"))
    assert answer.startswith(
        f"ResourceClaim default/c: cannot write CDI spec {node.cdi}/k8s.gpu.nvidia.com-claim_uid-c"
    )
    node.cdi.unlink()
    node.cdi.mkdir()
    assert node.leftovers() == []
    assert len(await node.prepare("c")) == 1


async def test_a_read_only_cdi_folder_when_a_claim_goes(node: Node) -> None:
    node.api.add(claim("c"), claim("d", result("gpu-1")))
    await node.prepare("c")
    node.specs.fail = EnvironmentFault("cannot remove CDI spec x: Read-only file system", hint="mount it read-write")
    answers = await node.service.unprepare([ref("c"), ref("unknown")])
    assert str(answers["uid-c"]).startswith("ResourceClaim default/c: cannot remove CDI spec x: Read-only file system")
    assert answers["uid-unknown"] is None
    assert [record.ref.name for record in node.records.all()] == ["c"], "what could not be removed is remembered"
    node.specs.fail = None
    assert await node.unprepare("c") is None
    assert node.leftovers() == []


async def test_a_bug_costs_one_claim_and_is_told_as_one(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.api.add(claim("c"), claim("d", result("gpu-1")))
    real = node.edits.gpu

    def gpu(gpu: Any) -> Any:
        if gpu.minor == 0:
            raise ZeroDivisionError("division by zero")
        return real(gpu)

    monkeypatch.setattr(node.edits, "gpu", gpu)
    answers = await node.service.prepare([ref("c"), ref("d")])
    assert isinstance(answers["uid-c"], InternalError)
    assert str(answers["uid-c"]).startswith("ResourceClaim default/c: ZeroDivisionError: division by zero (a bug in")
    assert len(answers["uid-d"]) == 1  # type: ignore[arg-type]


async def test_a_failure_that_can_not_be_reported_changes_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(failed: object) -> None:
        raise RuntimeError("no events today")

    monkeypatch.setattr(node, "failures", type("Refusing", (), {"append": staticmethod(refuse)}))
    assert "not found" in str(await node.prepare("c"))
    assert "the failure of ResourceClaim default/c could not be reported" in caplog.text


async def test_the_whole_cause_is_told(node: Node) -> None:
    try:
        try:
            raise TimeoutError("handshake timed out")
        except TimeoutError as inner:
            raise EnvironmentFault("connection to 10.0.0.1:443 failed") from inner
    except EnvironmentFault as middle:
        node.api.down = EnvironmentFault("can't read the claim", hint="check the network")
        node.api.down.__cause__ = middle
    assert str(await node.prepare("c")) == (
        "ResourceClaim default/c: can't read the claim (check the network); caused by: connection to 10.0.0.1:443"
        " failed; caused by: TimeoutError: handshake timed out"
    )


async def test_input_errors_stay_input_errors(node: Node) -> None:
    node.api.add(claim("c", config=[opaque(gpu_config(sharing=1))]))
    answer = await node.prepare("c")
    assert isinstance(answer, InputError)
    assert answer.path == "status.allocation.devices.config[0].opaque.parameters.sharing"


# --- unprepare


async def test_unprepare(node: Node) -> None:
    node.api.add(claim("c"), claim("d", result("gpu-1")))
    await node.service.prepare([ref("c"), ref("d")])
    node.changes.trace.clear()
    node.api.down = EnvironmentFault("connection refused")
    node.devices = None
    assert await node.unprepare("c") is None
    assert node.changes.trace == [
        "remove spec k8s.gpu.nvidia.com-claim_uid-c.json",
        "remove spec k8s.gpu.nvidia.com-claim_uid-c.yaml",
        "remove record uid-c.json",
    ]
    assert await node.unprepare("c") is None
    assert node.leftovers() == ["cdi/k8s.gpu.nvidia.com-claim_uid-d.json", "state/claims/uid-d.json"]
    assert [record.ref.name for record in node.service.prepared()] == ["d"]


@pytest.mark.parametrize("uid", ["unknown", "../../etc/passwd", "", "a/b"])
async def test_an_unknown_claim_is_unprepared(node: Node, uid: str) -> None:
    assert await node.unprepare("c", uid or None) is None


async def test_a_spec_without_a_record_goes_with_its_claim(node: Node) -> None:
    (node.cdi / "k8s.gpu.nvidia.com-claim_uid-c.json").write_text("{}")
    assert await node.unprepare("c") is None
    assert node.leftovers() == []


async def test_a_quarantined_record(node: Node) -> None:
    node.api.add(claim("c"))
    first = await node.prepare("c")
    (node.state / "claims" / "uid-c.json").write_text("garbage")
    await node.restart()
    assert [item.uid for item in node.quarantined] == ["uid-c"]
    assert await node.prepare("c") == first
    (node.state / "claims" / "uid-c.json").write_text("garbage again")
    await node.restart()
    assert await node.unprepare("c") is None
    assert node.leftovers() == []
    assert len(list((node.state / "quarantine").glob("*.reason"))) == 2


async def test_a_record_that_is_damaged_while_we_run(node: Node) -> None:
    node.api.add(claim("c"))
    first = await node.prepare("c")
    (node.state / "claims" / "uid-c.json").write_text("garbage")
    assert await node.prepare("c") == first
    assert node.api.reads == 2
    assert len(node.quarantined) == 1


@pytest.mark.parametrize("cdi_file", ["../../x.json", "", "x"])
async def test_a_record_that_names_an_impossible_spec_costs_nothing(node: Node, cdi_file: str) -> None:
    node.api.add(claim("c"), claim("d", result(device="gpu-1")))
    first = await node.prepare("c")
    node.records.put(replace(node.records.all()[0], cdi_file=cdi_file))
    answers = await node.service.prepare([ref("c"), ref("d")])
    assert answers["uid-c"] == first
    assert not isinstance(answers["uid-d"], DraDriverError)


@pytest.mark.parametrize("uid", ["../../x", "a/b", ".hidden", "x" * 201, "\u00fc", "a b", "a\n"])
async def test_a_uid_that_could_not_be_found_again_is_refused(node: Node, uid: str) -> None:
    node.api.add(claim("c", uid=uid))
    answer = await node.prepare("c", uid)
    assert isinstance(answer, InputError)
    assert "can't be part of a file name" in str(answer)
    assert node.leftovers() == []
    assert node.changes.count == 0
    assert await node.unprepare("c", uid) is None


async def test_reboot(node: Node) -> None:
    node.api.add(claim("c"), claim("d"))
    first = await node.prepare("c")
    await node.restart(boot_id="boot-2")
    assert node.service.prepared() == ()
    # The device is free for others: no container of the earlier boot can use it.
    node.api.delete("c")
    assert len(await node.prepare("d")) == 1
    node.api.add(claim("c"))
    assert "gpu-0 is already prepared for ResourceClaim default/d" in str(await node.prepare("c"))
    assert await node.unprepare("d") is None
    assert await node.prepare("c") == first
    assert node.records.all()[0].boot_id == "boot-2"
    assert await node.unprepare("c") is None
    assert node.leftovers() == []


async def test_a_claim_that_was_allocated_anew_gets_its_new_device(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    node.api.add(claim("c", result("gpu-1")), claim("d"))
    (node.cdi / "k8s.gpu.nvidia.com-claim_uid-c.json").unlink()
    assert [device.device for device in await node.prepare("c")] == ["gpu-1"]
    assert [device.device for device in await node.prepare("d")] == ["gpu-0"]


# --- one device, two claims


async def test_the_second_claim_is_refused_and_both_are_named(node: Node) -> None:
    node.api.add(claim("a"), claim("b"))
    await node.prepare("a")
    assert str(await node.prepare("b")).startswith(
        "ResourceClaim default/b (UID uid-b): gpu-0 is already prepared for ResourceClaim default/a (UID uid-a), which"
        " is still allocated and reserved"
    )
    assert len(await node.prepare("a")) == 1
    assert await node.unprepare("a") is None
    assert len(await node.prepare("b")) == 1


async def test_two_claims_at_the_same_moment(node: Node) -> None:
    node.api.add(claim("a"), claim("b"))
    answers = await node.service.prepare([ref("a"), ref("b")])
    failed = [answer for answer in answers.values() if isinstance(answer, DraDriverError)]
    assert len(failed) == 1
    assert "is already prepared for" in str(failed[0])
    assert len(node.records.all()) == 1


async def test_a_failed_prepare_gives_its_device_back(node: Node) -> None:
    node.api.add(claim("a"), claim("b"))
    node.edits.fail = EnvironmentFault("no device node")
    await fails(node, "a")
    node.edits.fail = None
    assert len(await node.prepare("b")) == 1


@pytest.mark.parametrize("gone", ["deleted", "replaced", "deallocated", "unreserved", "other device", "pod gone"])
async def test_the_other_claim_is_collected_when_nobody_wants_it(node: Node, gone: str) -> None:
    node.api.add(claim("a"), claim("b"))
    await node.prepare("a")
    match gone:
        case "deleted":
            node.api.delete("a")
        case "replaced":
            node.api.add(claim("a", uid="new"))
        case "deallocated":
            node.api.add(claim("a", allocated=False, reserved=False))
        case "unreserved":
            node.api.add(claim("a", reserved=False))
        case "other device":
            node.api.add(claim("a", result("gpu-1")))
        case _:
            node.api.pods = {"pod-uid-b"}
    assert [device.device for device in await node.prepare("b")] == ["gpu-0"]
    assert node.leftovers() == ["cdi/k8s.gpu.nvidia.com-claim_uid-b.json", "state/claims/uid-b.json"]
    assert [(d.operation, d.claim.name) for d in node.done] == [("prepare", "a"), ("collect", "a"), ("prepare", "b")]


KEPT = {
    "containers": (
        "is gone, but containers on this node still have it",
        lambda n: n.kubelet.in_use.add(("default", "a")),
    ),
    "kubelet down": (
        "is gone, but the kubelet can't be asked for its containers: no socket",
        lambda n: setattr(n.kubelet, "down", EnvironmentFault("no socket")),
    ),
}


@pytest.mark.parametrize(("text", "change"), KEPT.values(), ids=KEPT)
async def test_the_other_claim_is_kept_while_it_may_be_used(node: Node, text: str, change: Any) -> None:
    node.api.add(claim("a"), claim("b"))
    await node.prepare("a")
    node.api.delete("a")
    change(node)
    assert f"already prepared for ResourceClaim default/a (UID uid-a), which {text}" in str(await node.prepare("b"))
    assert len(node.records.all()) == 1
    node.kubelet.in_use.clear()
    node.kubelet.down = None
    assert len(await node.prepare("b")) == 1


async def test_without_anybody_to_ask_the_other_claim_is_kept(tmp_path: Path) -> None:
    node = Node(tmp_path, fate_wanted=False)
    await node.service.start()
    node.api.add(claim("a"), claim("b"))
    await node.prepare("a")
    node.api.delete("a")
    assert "already prepared for ResourceClaim default/a (UID uid-a) (a device" in str(await node.prepare("b"))
    await node.service.close()


async def test_observers_go_with_everybody(node: Node) -> None:
    node.api.add(claim("a"), claim("watch", result(admin_access=True)), claim("watch2", result(admin_access=True)))
    answers = await node.service.prepare([ref("watch"), ref("a"), ref("watch2")])
    assert [len(answer) for answer in answers.values()] == [1, 1, 1]  # type: ignore[arg-type]
    await node.restart()
    node.api.add(claim("b"))
    assert "ResourceClaim default/a" in str(await node.prepare("b"))


async def test_uses_are_known_after_a_restart(node: Node) -> None:
    node.api.add(claim("a"), claim("b"))
    await node.prepare("a")
    await node.restart()
    assert "already prepared for ResourceClaim default/a" in str(await node.prepare("b"))


async def test_what_another_instance_prepared_is_taken_over(node: Node) -> None:
    """A rolling update: the old instance finishes a call after the new one has read the records."""
    other = Node.__new__(Node)
    other.__dict__.update(node.__dict__)
    other._build()
    await other.service.start()
    node.api.add(claim("a"), claim("b"))
    first = await other.prepare("a")
    assert await node.prepare("a") == first
    assert "already prepared for ResourceClaim default/a" in str(await node.prepare("b"))
    assert await node.unprepare("a") is None
    assert other.records.all() != ()
    assert [device.device for device in await other.prepare("b")] == ["gpu-0"], "the record in memory is not the truth"
    assert "already prepared for ResourceClaim default/b" in str(await other.prepare("a"))
    await other.service.close()


async def test_a_device_that_another_instance_prepared_is_in_use(node: Node) -> None:
    node.api.add(claim("c"), claim("d"), claim("e", result(device="gpu-1")))
    await node.prepare("c")
    await node.prepare("e")
    written = {path: path.read_bytes() for path in (node.state / "claims").iterdir()}
    await node.unprepare("c")
    await node.unprepare("e")
    for path, content in written.items():  # as an instance does that started before this one and still serves
        path.write_bytes(content)
    answer = await node.prepare("d")
    assert isinstance(answer, EnvironmentFault)
    assert "gpu-0 is already prepared for ResourceClaim default/c (UID uid-c)" in str(answer)
    assert {record.ref.name for record in node.records.all()} == {"c", "e"}


async def test_closing_lets_running_calls_finish(node: Node) -> None:
    node.api.gate = asyncio.Event()
    node.api.add(claim("c"))
    call = asyncio.create_task(node.prepare("c"))
    while not node.api.reads:
        await asyncio.sleep(0)
    closing = asyncio.create_task(node.service.close())
    await asyncio.sleep(0)
    node.api.gate.set()
    await closing
    assert len(await call) == 1
