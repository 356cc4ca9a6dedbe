"""What the kubelet lost is collected; what can't be judged stays."""

from __future__ import annotations

import os

import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.prepare.reconcile import Collected, ReconcileReport
from tests.prepare.node import Killed, Node, claim, ref, result


async def test_an_empty_node_asks_nobody(node: Node) -> None:
    assert await node.reconciler.run_once() == ReconcileReport()
    assert (node.api.reads, node.kubelet.asked) == (0, 0)


async def test_claims_that_nobody_wants_are_collected(node: Node) -> None:
    node.with_partitions("part-0")
    node.api.add(
        claim("gone"),
        claim("kept", result("gpu-1")),
        claim("replaced", result("part-0")),
        claim("free", result("gpu-2")),
    )
    await node.service.prepare([ref("gone"), ref("kept"), ref("replaced"), ref("free")])
    node.api.delete("gone")
    node.api.add(claim("replaced", uid="new"), claim("free", reserved=False, allocated=False))
    report = await node.reconciler.run_once()
    assert report == ReconcileReport(
        collected=(
            Collected(ref("free"), "is no longer allocated"),
            Collected(ref("gone"), "is gone"),
            Collected(ref("replaced"), "got replaced by one with UID new"),
        ),
        kept=1,
    )
    assert node.leftovers() == ["cdi/k8s.gpu.nvidia.com-claim_uid-kept.json", "state/claims/uid-kept.json"]
    assert node.kubelet.asked == 1
    assert await node.reconciler.run_once() == ReconcileReport(kept=1)


async def test_containers_keep_their_claim(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    node.api.delete("c")
    node.kubelet.in_use.add(("default", "c"))
    assert await node.reconciler.run_once() == ReconcileReport(kept=1)
    node.kubelet.in_use.clear()
    assert [item.claim for item in (await node.reconciler.run_once()).collected] == [ref("c")]


async def test_without_the_api_server_everything_stays(node: Node) -> None:
    node.api.add(claim("c"), claim("d", result("gpu-1")))
    await node.service.prepare([ref("c"), ref("d")])
    node.api.delete("c")
    node.api.down = EnvironmentFault("connection refused")
    report = await node.reconciler.run_once()
    assert (report.collected, report.kept) == ((), 2)
    assert report.undecided == (
        "ResourceClaim default/c (UID uid-c) can't be asked about at the API server: connection refused; its devices"
        " stay prepared",
        "ResourceClaim default/d (UID uid-d) can't be asked about at the API server: connection refused; its devices"
        " stay prepared",
    )


async def test_without_the_kubelet_everything_stays(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    node.api.delete("c")
    node.kubelet.down = EnvironmentFault("no socket")
    report = await node.reconciler.run_once()
    assert (report.collected, report.kept) == ((), 1)
    assert report.undecided == ("all 1 records stay: the kubelet can't be asked for its containers: no socket",)


async def test_a_claim_that_can_not_be_cleared_is_reported_and_tried_again(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    node.api.delete("c")
    node.specs.fail = EnvironmentFault("cannot remove CDI spec: Read-only file system")
    report = await node.reconciler.run_once()
    assert report.failed == ("ResourceClaim default/c: cannot remove CDI spec: Read-only file system",)
    assert (report.collected, report.kept) == ((), 1)
    node.specs.fail = None
    assert len((await node.reconciler.run_once()).collected) == 1


@pytest.mark.parametrize("steps", [1, 3, 6])
async def test_what_a_killed_prepare_left_is_collected(node: Node, steps: int) -> None:
    node.with_partitions("part-0")
    node.api.add(claim("c", result("part-0")))
    node.kill_at(steps)
    with pytest.raises(Killed):
        await node.prepare("c")
    await node.restart()
    assert (await node.reconciler.run_once()).collected == (), "it may be prepared again at any moment"
    node.api.delete("c")
    assert [item.claim for item in (await node.reconciler.run_once()).collected] == [ref("c")]
    assert node.leftovers() == []


async def test_records_of_an_earlier_boot(node: Node) -> None:
    node.api.add(claim("c"), claim("d", result("gpu-1")))
    await node.service.prepare([ref("c"), ref("d")])
    await node.restart(boot_id="boot-2")
    node.api.delete("c")
    report = await node.reconciler.run_once()
    assert [item.claim for item in report.collected] == [ref("c")]
    assert node.leftovers() == ["state/claims/uid-d.json"]


async def test_a_claim_that_is_prepared_while_it_is_judged_is_left_alone(node: Node) -> None:
    node.api.add(claim("c"))
    await node.prepare("c")
    (held,) = node.service.held()
    await node.prepare("c")
    assert await node.service.collect(held) is False
    assert await node.service.collect(node.service.held()[0]) is True
    assert node.leftovers() == []
    assert await node.service.collect(held) is False


async def orphan(node: Node, name: str) -> str:
    """The CDI spec that is left when a process is killed between the spec and the record."""
    node.api.add(claim(name))
    node.kill_at(2)
    with pytest.raises(Killed):
        await node.prepare(name)
    await node.restart()
    return f"k8s.gpu.nvidia.com-claim_uid-{name}.json"


async def test_an_orphan_goes_when_it_was_one_before(node: Node) -> None:
    name = await orphan(node, "c")
    (node.cdi / "vendor.example-claim_uid-c.json").write_text("{}")
    assert (await node.reconciler.run_once()).orphans == ()
    node.now += 299
    assert (await node.reconciler.run_once()).orphans == ()
    node.now += 1
    assert (await node.reconciler.run_once()).orphans == (name,)
    assert node.leftovers() == ["cdi/vendor.example-claim_uid-c.json"]
    assert (await node.reconciler.run_once()).orphans == ()


async def test_an_orphan_stays_while_a_container_has_its_claim(node: Node) -> None:
    name = await orphan(node, "c")
    node.kubelet.in_use = {("default", "c"), ("default", "deleted")}
    await node.reconciler.run_once()
    node.now += 1000
    assert (await node.reconciler.run_once()).orphans == ()
    node.api.add(claim("c", uid="new"))
    assert (await node.reconciler.run_once()).orphans == (name,)


async def test_an_orphan_stays_when_nobody_can_be_asked(node: Node) -> None:
    await orphan(node, "c")
    await node.reconciler.run_once()
    node.now += 1000
    node.kubelet.down = EnvironmentFault("no socket")
    report = await node.reconciler.run_once()
    assert report.undecided == ("CDI specs without a record stay (uid-c): no socket",)
    node.kubelet.down = None
    node.kubelet.in_use = {("default", "c")}
    node.api.down = EnvironmentFault("connection refused")
    report = await node.reconciler.run_once()
    assert report.undecided == ("CDI specs without a record stay (uid-c): connection refused",)
    assert len(node.leftovers()) == 1


async def test_an_orphan_that_is_prepared_meanwhile_is_none(node: Node) -> None:
    await orphan(node, "c")
    await node.reconciler.run_once()
    node.now += 1000
    assert len(await node.prepare("c")) == 1
    assert await node.service.collect_orphan("uid-c") is False
    assert (await node.reconciler.run_once()) == ReconcileReport(kept=1)


async def test_temporary_files_are_swept(node: Node) -> None:
    (node.state / "claims").mkdir(parents=True)
    record, spec = node.state / "claims" / ".uid-c.json-1-ab-0.tmp", node.cdi / ".dra-driver-ab-0.tmp"
    for file in (record, spec):
        file.write_text("half")
        os.utime(file, (node.now - 100,) * 2)
    assert (await node.reconciler.run_once()).temporary == (record.name, spec.name)
    assert node.leftovers() == []


async def test_what_another_instance_did_is_taken_over(node: Node) -> None:
    other = Node.__new__(Node)
    other.__dict__.update(node.__dict__)
    other._build()
    node.api.add(claim("a"), claim("b", result("gpu-1")))
    await node.prepare("a")
    await other.service.start()
    await other.prepare("b")
    await other.unprepare("a")
    assert (await node.reconciler.run_once()).kept == 1
    assert [record.ref.name for record in node.records.all()] == ["b"]
    node.api.add(claim("x", result("gpu-1")), claim("y"))
    assert "already prepared for ResourceClaim default/b" in str(await node.prepare("x"))
    assert len(await node.prepare("y")) == 1
    await other.service.close()


async def test_a_folder_that_can_not_be_read_is_reported(node: Node) -> None:
    node.cdi.rmdir()
    report = await node.reconciler.run_once()
    assert len(report.failed) == 2
    assert all(str(node.cdi) in text for text in report.failed)
