"""Events: aggregated, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dra_driver.kube.client import ApiClient
from dra_driver.kube.config import TokenFile
from dra_driver.kube.events import EventRecorder, ObjectReference
from tests.kube.fake_apiserver import FakeApiServer, Fault

POD = ObjectReference("Pod", "trainer-0", "team", "uid-1")
CLAIM = ObjectReference("ResourceClaim", "gpu", "team", "uid-2", "resource.k8s.io/v1")
NODE = ObjectReference("Node", "node-a", uid="uid-3")


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def recording(client: ApiClient, clock: Clock) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, "dra-driver", "node-a", wall_clock=clock, timeout=1.0)
    task = asyncio.create_task(recorder.run())
    yield recorder
    await recorder.flush()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_event_names_its_object_and_its_source(client: ApiClient, fake: FakeApiServer, clock: Clock) -> None:
    async with recording(client, clock) as recorder:
        recorder.record(CLAIM, "Warning", "PrepareFailed", "no such device")

    (event,) = fake.objects("events")
    assert event["metadata"]["namespace"] == "team"
    assert event["metadata"]["name"].startswith("gpu.")
    assert event["involvedObject"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "name": "gpu",
        "namespace": "team",
        "uid": "uid-2",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "PrepareFailed", "no such device")
    assert event["source"] == {"component": "dra-driver", "host": "node-a"}
    assert (event["firstTimestamp"], event["count"]) == ("2027-01-15T08:00:00Z", 1)


async def test_an_event_on_a_node_is_in_the_default_namespace(
    client: ApiClient, fake: FakeApiServer, clock: Clock
) -> None:
    async with recording(client, clock) as recorder:
        recorder.record(NODE, "Normal", "Published", "8 devices")

    assert fake.objects("events")[0]["metadata"]["namespace"] == "default"


async def test_repetitions_are_counted_on_one_event(client: ApiClient, fake: FakeApiServer, clock: Clock) -> None:
    async with recording(client, clock) as recorder:
        for _ in range(3):
            recorder.record(POD, "Warning", "PrepareFailed", "same")
            clock.now += 30
        recorder.record(POD, "Warning", "PrepareFailed", "other")
        await recorder.flush()
        assert recorder.written == 4

    found = {e["message"]: (e["count"], e["lastTimestamp"]) for e in fake.objects("events")}
    assert found == {"same": (3, "2027-01-15T08:01:00Z"), "other": (1, "2027-01-15T08:01:30Z")}


async def test_after_ten_minutes_a_repetition_is_a_new_event(
    client: ApiClient, fake: FakeApiServer, clock: Clock
) -> None:
    async with recording(client, clock) as recorder:
        recorder.record(POD, "Warning", "R", "m")
        clock.now += 601
        recorder.record(POD, "Warning", "R", "m")

    assert [e["count"] for e in fake.objects("events")] == [1, 1]


async def test_an_event_that_expired_on_the_server_is_created_again(
    client: ApiClient, fake: FakeApiServer, clock: Clock
) -> None:
    async with recording(client, clock) as recorder:
        recorder.record(POD, "Warning", "R", "m")
        await recorder.flush()
        fake.remove("events", fake.objects("events")[0]["metadata"]["name"], "team")
        recorder.record(POD, "Warning", "R", "m")

    assert [e["count"] for e in fake.objects("events")] == [1]


async def test_each_object_has_its_own_budget(client: ApiClient, fake: FakeApiServer, clock: Clock) -> None:
    async with recording(client, clock) as recorder:
        for number in range(30):
            recorder.record(POD, "Warning", "R", f"message {number}")
        recorder.record(CLAIM, "Warning", "R", "heard")
        assert recorder.dropped == {"queue-full": 0, "rate": 5, "error": 0}
        await recorder.flush()
        clock.now += 300  # one more is allowed
        recorder.record(POD, "Warning", "R", "message 30")
        recorder.record(POD, "Warning", "R", "message 31")

    assert len(fake.objects("events")) == 25 + 1 + 1
    assert recorder.dropped["rate"] == 6


async def test_a_full_queue_drops_and_counts(client: ApiClient, clock: Clock) -> None:
    recorder = EventRecorder(client, wall_clock=clock)
    for number in range(300):
        recorder.record(ObjectReference("Pod", f"p{number}", "team"), "Normal", "R", "m")

    assert recorder.dropped["queue-full"] == 300 - 256


@pytest.mark.parametrize("fault", [Fault(status=403), Fault(abort=True), Fault(status=500)], ids=["403", "cut", "500"])
async def test_an_event_that_cannot_be_written_is_counted_and_the_next_one_is_written(
    client: ApiClient, fake: FakeApiServer, clock: Clock, fault: Fault
) -> None:
    fault.times = 1
    fake.faults.append(fault)
    async with recording(client, clock) as recorder:
        recorder.record(POD, "Warning", "R", "lost")
        recorder.record(POD, "Warning", "R", "written")

    assert [e["message"] for e in fake.objects("events")] == ["written"]
    assert (recorder.written, recorder.dropped["error"]) == (1, 1)


async def test_credentials_that_cannot_be_read_cost_one_event(
    fake: FakeApiServer, clock: Clock, tmp_path: Path
) -> None:
    credentials = TokenFile(tmp_path / "token")
    async with ApiClient(fake.config(credentials=credentials)) as client, recording(client, clock) as recorder:
        recorder.record(POD, "Warning", "R", "lost")
        await recorder.flush()
        credentials.path.write_text("t")
        recorder.record(POD, "Warning", "R", "written")

    assert [e["message"] for e in fake.objects("events")] == ["written"]
    assert recorder.dropped["error"] == 1


async def test_a_server_that_is_away_does_not_block_the_caller(
    client: ApiClient, fake: FakeApiServer, clock: Clock
) -> None:
    await fake.stop()
    recorder = EventRecorder(client, wall_clock=clock, timeout=0.1)
    task = asyncio.create_task(recorder.run())
    recorder.record(POD, "Warning", "R", "m")
    await recorder.flush()
    task.cancel()

    assert recorder.dropped["error"] == 1


async def test_a_long_message_and_a_long_name_are_cut_to_what_the_api_takes(
    client: ApiClient, fake: FakeApiServer, clock: Clock
) -> None:
    async with recording(client, clock) as recorder:
        recorder.record(ObjectReference("Pod", "p" * 229 + ".x" * 12, "team"), "Warning", "R", "m" * 5000)

    (event,) = fake.objects("events")
    assert len(event["message"]) == 1024
    assert len(event["metadata"]["name"]) <= 253
    assert event["metadata"]["name"].startswith("p" * 229 + ".")
