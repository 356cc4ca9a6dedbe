"""The publisher against a server that loses, changes, drops and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.kube.client import ApiClient
from dra_driver.kube.publish import PublishTiming, SlicePublisher
from dra_driver.kube.publish_state import DroppedFields, PublishObserver, PublishState
from dra_driver.kube.rivalry import Competitor
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import (
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)
from tests.kube.fake_apiserver import FakeApiServer, Fault, until

DRIVER, NODE = "gpu.example.com", "node-a"
FAST = PublishTiming(debounce=0.02, resync=300.0, first_retry=0.01, longest_retry=0.05)


@dataclass(frozen=True)
class Slice:
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


def gpus(*names: str, memory: str = "80Gi", taints: tuple[DeviceTaint, ...] = ()) -> Slice:
    return Slice(
        tuple(
            Device(
                name=name,
                attributes={"uuid": DeviceAttribute("string", f"GPU-{name}")},
                capacity={"memory": DeviceCapacity(value=Quantity.parse(memory))},
                taints=taints,
            )
            for name in names
        )
    )


class Observer(PublishObserver):
    def __init__(self) -> None:
        self.successes: list[PublishState] = []
        self.failures: list[EnvironmentFault] = []
        self.dropped: list[DroppedFields] = []
        self.competitors: list[Competitor] = []

    def published(self, state: PublishState) -> None:
        self.successes.append(state)

    def failed(self, error: EnvironmentFault, retry_in: float) -> None:
        self.failures.append(error)

    def fields_dropped(self, dropped: DroppedFields) -> None:
        self.dropped.append(dropped)

    def competitor_found(self, competitor: Competitor) -> None:
        self.competitors.append(competitor)


@dataclass
class Running:
    publisher: SlicePublisher
    observer: Observer
    fake: FakeApiServer

    @property
    def devices(self) -> list[list[str]]:
        """Names of the devices in the stored slices, in the order of the slices' names."""
        return [[d["name"] for d in s["spec"].get("devices") or ()] for s in self.slices]

    @property
    def slices(self) -> list[dict[str, Any]]:
        return [s for s in self.fake.objects("resourceslices") if s["spec"]["driver"] == DRIVER]

    @property
    def writes(self) -> int:
        return sum(len(self.fake.calls(verb, "resourceslices")) for verb in ("POST", "PUT", "DELETE", "PATCH"))

    async def settled(self, devices: Sequence[Sequence[str]]) -> None:
        """Until the slices have these devices and the publisher knows it."""
        want, count = [list(names) for names in devices], sum(map(len, devices))

        def known() -> bool:
            state = self.publisher.state
            return state.last_success is not None and state.last_error is None and state.published_devices == count

        await until(lambda: self.devices == want and known())

    async def quiet(self) -> None:
        """Nothing is written while events have time to have an effect."""
        before = self.writes
        await asyncio.sleep(0.15)
        assert self.writes == before


@asynccontextmanager
async def publishing(
    client: ApiClient, fake: FakeApiServer, *slices: Slice, timing: PublishTiming = FAST, node: bool = True
) -> AsyncIterator[Running]:
    if node and not fake.objects("nodes"):
        fake.put("nodes", {"metadata": {"name": NODE}})
    observer = Observer()
    publisher = SlicePublisher(client, DRIVER, NODE, observer=observer, timing=timing)
    publisher.set_desired(slices)
    task = asyncio.create_task(publisher.run())
    yield Running(publisher, observer, fake)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def node_uid(fake: FakeApiServer) -> str:
    return str(fake.objects("nodes")[0]["metadata"]["uid"])


async def test_publishes_named_numbered_and_owned_slices(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a", "b"), gpus("c")) as run:
        await run.settled([["a", "b"], ["c"]])

        first, second = run.slices
        assert first["metadata"]["name"].startswith("00000-gpu.example.com-node-a-")
        assert second["metadata"]["name"].startswith("00001-gpu.example.com-node-a-")
        assert first["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node_uid(fake), "controller": True}
        ]
        assert first["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 2}
        assert first["spec"]["nodeName"] == NODE
        assert first["spec"]["devices"][0]["capacity"] == {"memory": {"value": "80Gi"}}
        state = run.publisher.state
        assert (state.published_generation, state.published_slices, state.published_devices) == (1, 2, 3)
        assert (state.writes, state.failures, state.last_error) == (2, 0, None)
        await run.quiet()


async def test_a_spec_of_the_model_is_accepted_and_gets_our_pool(client: ApiClient, fake: FakeApiServer) -> None:
    spec = ResourceSliceSpec(
        driver="x", pool=ResourcePool(name="y", generation=9, resource_slice_count=9), devices=gpus("a").devices
    )
    fake.put("nodes", {"metadata": {"name": NODE}})
    publisher = SlicePublisher(client, DRIVER, NODE, timing=FAST)
    publisher.set_desired([spec])
    task = asyncio.create_task(publisher.run())
    (stored,) = await until(lambda: fake.objects("resourceslices"))
    task.cancel()

    assert stored["spec"]["driver"] == DRIVER
    assert stored["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}


async def test_a_pool_without_devices_is_one_empty_slice(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, Slice()) as run:
        await run.settled([[]])


async def test_the_same_again_writes_nothing(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        run.publisher.set_desired([gpus("a")])
        run.publisher.set_desired([gpus("a", memory="81920Mi")])
        await run.quiet()

        assert run.publisher.state.writes == 1


async def test_a_restart_with_the_same_devices_writes_nothing(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a"), gpus("b")) as run:
        await run.settled([["a"], ["b"]])
    assert run.devices == [["a"], ["b"]], "a stop leaves the slices alone"

    async with publishing(client, fake, gpus("a"), gpus("b")) as run:
        await until(lambda: run.observer.successes)
        await run.quiet()
        assert run.publisher.state.writes == 0


async def test_a_change_of_one_device_is_one_update_in_the_same_generation(
    client: ApiClient, fake: FakeApiServer
) -> None:
    names = [f"gpu-{i:03}" for i in range(192)]
    cut = [gpus(*names[start : start + 64]) for start in range(0, 192, 64)]
    async with publishing(client, fake, *cut) as run:
        await run.settled([names[:64], names[64:128], names[128:]])
        before = run.writes
        rest = names[:3] + names[4:]
        run.publisher.set_desired([gpus(*rest[:64]), gpus(*rest[64:128]), gpus(*rest[128:])])
        await run.settled([rest[:63], names[64:128], names[128:]])
        run.publisher.set_desired(cut)
        await run.settled([names[:64], names[64:128], names[128:]])

        assert run.writes - before == 2
        assert run.publisher.state.published_generation == 1


async def test_fewer_slices_delete_the_obsolete_ones_first(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a"), gpus("b"), gpus("c"), gpus("d")) as run:
        await run.settled([["a"], ["b"], ["c"], ["d"]])
        start = len(fake.requests)
        run.publisher.set_desired([gpus("d")])
        await run.settled([["d"]])

        verbs = [r.verb for r in fake.requests[start:] if r.verb in ("PUT", "POST", "DELETE")]
        assert verbs == ["DELETE", "DELETE", "DELETE", "PUT"]
        assert all(set(r.body["preconditions"]) == {"uid", "resourceVersion"} for r in fake.calls("DELETE"))


async def test_nothing_wanted_removes_all_slices(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        run.publisher.set_desired([])
        await run.settled([])


async def test_wiped_slices_come_back_in_one_go(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a"), gpus("b")) as run:
        await run.settled([["a"], ["b"]])
        for stored in run.slices:
            fake.remove("resourceslices", stored["metadata"]["name"])
        await run.settled([["a"], ["b"]])

        await until(lambda: run.publisher.state.writes == 4)
        assert [s["spec"]["pool"]["generation"] for s in run.slices] == [2, 2]
        await run.quiet()
        assert run.publisher.state.competitor is None


async def test_wiped_slices_are_back_within_two_seconds_with_the_timing_of_production(
    client: ApiClient, fake: FakeApiServer
) -> None:
    async with publishing(client, fake, gpus("a"), timing=PublishTiming()) as run:
        await run.settled([["a"]])
        began = asyncio.get_running_loop().time()
        fake.remove("resourceslices", run.slices[0]["metadata"]["name"])
        await run.settled([["a"]])

        assert asyncio.get_running_loop().time() - began < 2.0


@pytest.mark.parametrize("when", ["watched", "while-the-watch-was-broken", "while-the-server-was-away"])
async def test_a_foreign_change_is_undone(client: ApiClient, fake: FakeApiServer, when: str) -> None:
    async with publishing(client, fake, gpus("a", "b")) as run:
        await run.settled([["a", "b"]])
        (stored,) = run.slices
        del stored["spec"]["devices"][0]
        if when == "while-the-watch-was-broken":
            fake.break_watches()
        if when == "while-the-server-was-away":
            await fake.stop()
        fake.put("resourceslices", stored)
        if when == "while-the-server-was-away":
            await fake.start()
        await run.settled([["a", "b"]])

        assert run.slices[0]["spec"]["pool"]["generation"] == 1


async def test_foreign_labels_are_left_alone(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        (stored,) = run.slices
        stored["metadata"]["labels"] = {"mine": "yes"}
        fake.put("resourceslices", stored)
        await run.quiet()
        run.publisher.set_desired([gpus("a", "b")])
        await run.settled([["a", "b"]])

        assert run.slices[0]["metadata"]["labels"] == {"mine": "yes"}


async def test_slices_of_others_are_left_alone(client: ApiClient, fake: FakeApiServer) -> None:
    for name, driver, node in (("x", "other.example.com", NODE), ("y", DRIVER, "node-b")):
        spec = {"driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}
        fake.put("resourceslices", {"metadata": {"name": name}, "spec": spec})
    async with publishing(client, fake, gpus("a")) as run:
        await until(lambda: run.publisher.state.last_success)
        await run.publisher.uninstall()

        assert {"x", "y"} <= {o["metadata"]["name"] for o in fake.objects("resourceslices")}


async def test_a_replaced_node_owns_its_new_slices(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        old = node_uid(fake)
        fake.remove("nodes", NODE)
        fake.remove("resourceslices", run.slices[0]["metadata"]["name"])  # the garbage collector
        await until(lambda: run.publisher.state.last_error)
        assert 'node "node-a" does not exist' in str(run.publisher.state.last_error)
        fake.put("nodes", {"metadata": {"name": NODE}})
        await run.settled([["a"]])

        assert node_uid(fake) != old
        assert run.slices[0]["metadata"]["ownerReferences"][0]["uid"] == node_uid(fake)


async def test_a_replaced_node_is_noticed_without_the_garbage_collector(client: ApiClient, fake: FakeApiServer) -> None:
    timing = PublishTiming(debounce=0.02, resync=0.1)
    async with publishing(client, fake, gpus("a"), timing=timing) as run:
        await run.settled([["a"]])
        fake.remove("nodes", NODE)
        fake.put("nodes", {"metadata": {"name": NODE}})
        await until(lambda: run.slices[0]["metadata"]["ownerReferences"][0]["uid"] == node_uid(fake))

        assert len(run.slices[0]["metadata"]["ownerReferences"]) == 1
        assert len(fake.calls("POST")) == 1


async def test_the_node_need_not_exist_yet(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a"), node=False) as run:
        await until(lambda: run.observer.failures)
        assert "the kubelet has not registered it yet" in str(run.observer.failures[0])
        fake.put("nodes", {"metadata": {"name": NODE}})
        await run.settled([["a"]])


async def test_an_invalid_wish_is_refused_at_once_and_changes_nothing(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        with pytest.raises(InputError, match=r"slices\[0\].spec.devices\[0\].name: .*Not_A_Label"):
            run.publisher.set_desired([gpus("Not_A_Label")])
        await run.quiet()

        assert run.devices == [["a"]]


TAINT = (DeviceTaint(key="example.com/unhealthy", effect="NoSchedule"),)


async def test_the_time_of_a_taint_stays_when_something_else_changes(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a", taints=TAINT)) as run:
        await run.settled([["a"]])
        (stored,) = run.slices
        stored["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2020-01-01T00:00:00Z"
        fake.put("resourceslices", stored)
        await run.quiet()
        run.publisher.set_desired([gpus("a", "b", taints=TAINT)])
        await run.settled([["a", "b"]])

        times = [d["taints"][0]["timeAdded"] for d in run.slices[0]["spec"]["devices"]]
        assert times[0] == "2020-01-01T00:00:00Z"
        assert times[1] > "2025"


async def test_dropped_fields_are_named_once_and_not_fought_for(client: ApiClient, fake: FakeApiServer) -> None:
    fake.dropped = {"taints"}
    async with publishing(client, fake, gpus("a", "b", taints=TAINT)) as run:
        await run.settled([["a", "b"]])
        await run.quiet()

        (dropped,) = run.observer.dropped
        assert dropped.gates == ("DRADeviceTaints",)
        assert "spec.devices[0].taints, spec.devices[1].taints" in str(dropped)
        assert "feature gates that are off: DRADeviceTaints" in str(dropped)
        assert run.publisher.state.dropped == dropped
        assert run.publisher.state.writes == 1
        run.publisher.set_desired([gpus("a", "b")])
        await until(lambda: run.publisher.state.dropped is None)


@pytest.mark.parametrize("reason", ["upgrade", "hour"])
async def test_dropped_fields_are_tried_again(client: ApiClient, fake: FakeApiServer, reason: str) -> None:
    fake.dropped = {"taints"}
    retry = 0.2 if reason == "hour" else 3600.0
    timing = PublishTiming(debounce=0.02, resync=0.05, retry_dropped=retry)
    async with publishing(client, fake, gpus("a", taints=TAINT), timing=timing) as run:
        await until(lambda: run.publisher.state.dropped)
        await until(lambda: len(fake.calls("GET", "/version")) >= 2)
        fake.dropped = set()
        if reason == "upgrade":
            assert not fake.calls("PUT")
            fake.version = "v1.38.0"
        await until(lambda: run.publisher.state.dropped is None and run.slices[0]["spec"]["devices"][0].get("taints"))

        assert run.publisher.state.writes == 2
        assert fake.calls("PUT")[0].query == {"dryRun": "All"}


async def test_fields_that_stay_dropped_are_only_asked_for_by_dry_runs(client: ApiClient, fake: FakeApiServer) -> None:
    fake.dropped = {"taints"}
    timing = PublishTiming(debounce=0.02, resync=0.03, retry_dropped=0.05)
    async with publishing(client, fake, gpus("a", taints=TAINT), timing=timing) as run:
        await until(lambda: len(fake.calls("PUT")) >= 3)

        assert all(r.query == {"dryRun": "All"} for r in fake.calls("PUT"))
        assert len(run.observer.dropped) == 1


async def test_two_publishers_with_different_content_are_noticed_and_slowed_down(
    client: ApiClient, fake: FakeApiServer
) -> None:
    async with publishing(client, fake, gpus("a")) as one, ApiClient(fake.config(), user_agent="rival/1") as second:
        await one.settled([["a"]])
        async with publishing(second, fake, gpus("b")) as two:
            await until(lambda: one.observer.competitors)
            await until(lambda: two.observer.competitors or one.publisher.state.competitor)
            before = one.writes
            await asyncio.sleep(0.3)

            assert one.writes - before <= 2
            assert one.observer.competitors[0].field_manager == "rival"
            assert len(one.observer.competitors) == 1


async def test_two_publishers_with_the_same_content_get_along(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as one:
        await one.settled([["a"]])
        async with publishing(client, fake, gpus("a")) as two:
            await until(lambda: two.observer.successes)
            await two.quiet()

        assert one.publisher.state.competitor is None
        assert one.writes == 1


async def test_a_failing_server_is_tried_again_with_a_bounded_pause(client: ApiClient, fake: FakeApiServer) -> None:
    body = '{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not allowed"}'
    fake.faults.append(Fault("POST", status=403, body=body, times=3))
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])

        assert [str(e).split(" (")[0] for e in run.observer.failures] == [
            "post /apis/resource.k8s.io/v1/resourceslices: not allowed"
        ] * 3
        assert run.publisher.state.failures == 3


async def test_slices_that_can_not_be_listed_are_a_failure_with_its_reason(
    client: ApiClient, fake: FakeApiServer
) -> None:
    body = '{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not allowed to list"}'
    fake.faults.append(Fault("GET", "/resourceslices", status=403, body=body, times=2))
    async with publishing(client, fake, gpus("a")) as run:
        await until(lambda: run.observer.failures)
        assert "not allowed to list" in str(run.publisher.state.last_error)
        await run.settled([["a"]])
        assert (len(run.observer.failures), run.publisher.state.failures) == (2, 2)


@pytest.mark.parametrize("verb", ["GET", "POST", "WATCH"])
@pytest.mark.parametrize("body", ["null", "[]", "{}", "[" * 100_000], ids=["null", "list", "empty", "too-deep"])
async def test_answers_that_are_no_objects_are_survived(
    client: ApiClient, fake: FakeApiServer, verb: str, body: str
) -> None:
    fake.faults.append(Fault(verb, status=200, body=body, times=3))
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        fake.break_watches()
        run.publisher.set_desired([gpus("a", "b")])
        await run.settled([["a", "b"]])


async def test_a_write_whose_answer_was_lost_is_not_doubled(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a")) as run:
        await run.settled([["a"]])
        fake.faults += [Fault("PUT", lose_answer=True)]
        run.publisher.set_desired([gpus("a", "b")])
        await run.settled([["a", "b"]])
        await run.quiet()

        assert len(run.slices) == 1


async def test_a_creation_whose_answer_was_lost_is_not_doubled(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault("POST", lose_answer=True))
    async with publishing(client, fake, gpus("a"), gpus("b")) as run:
        await run.settled([["a"], ["b"]])
        await run.quiet()

        assert run.devices == [["a"], ["b"]]


async def test_a_new_wish_does_not_wait_for_the_end_of_a_pause(client: ApiClient, fake: FakeApiServer) -> None:
    timing = PublishTiming(debounce=0.02, first_retry=60.0, longest_retry=60.0)
    fake.faults.append(Fault("POST", status=403, body='{"reason": "Forbidden"}'))
    async with publishing(client, fake, gpus("a"), timing=timing) as run:
        await until(lambda: run.observer.failures)
        run.publisher.set_desired([gpus("b")])
        await run.settled([["b"]])


async def test_uninstall_removes_our_slices_and_counts_them(client: ApiClient, fake: FakeApiServer) -> None:
    async with publishing(client, fake, gpus("a"), gpus("b")) as run:
        await run.settled([["a"], ["b"]])

    assert await SlicePublisher(client, DRIVER, NODE).uninstall() == 2
    assert run.slices == []
    assert await SlicePublisher(client, DRIVER, NODE).uninstall() == 0
