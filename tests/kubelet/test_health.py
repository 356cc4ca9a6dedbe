"""Device health: full lists, at once and again, never fresher than they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.health import (
    MAX_DEVICES,
    ConstantHealth,
    DeviceHealth,
    Health,
    HealthFeed,
    HealthSource,
    HealthUnsupported,
)
from dra_driver.kubelet.health_service import cut_message, health_handlers
from dra_driver.kubelet.pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from dra_driver.kubelet.sockets import grpc_address
from dra_driver.kubelet.wire import new_channel, new_server, service, streamed
from tests.kubelet.plugin import eventually

GOOD = DeviceHealth("node-1", "gpu-0", Health.HEALTHY, check_timeout=3600)
BAD = DeviceHealth("node-1", "gpu-1", Health.UNHEALTHY, "XID 79: GPU has fallen off the bus", check_timeout=3600)
VERSIONS = [pytest.param(dra_health_v1_pb2, id="v1"), pytest.param(dra_health_v1alpha1_pb2, id="v1alpha1")]


class Script:
    """A source that gives lists and raises errors as told: one list of steps per question."""

    def __init__(self, *questions: Iterable[Any]) -> None:
        self._questions = list(questions)
        self.asked = 0

    async def watch(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        steps = self._questions[self.asked] if self.asked < len(self._questions) else [asyncio.Event()]
        self.asked += 1
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                yield step


class Clock:
    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def fed(source: HealthSource, clock: Clock | None = None) -> AsyncIterator[HealthFeed]:
    feed = HealthFeed(source, clock=clock or Clock(), retry_seconds=0.01)
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        feed.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def take(lists: AsyncIterator[tuple[DeviceHealth, ...]], count: int) -> list[tuple[DeviceHealth, ...]]:
    return [await anext(lists) for _ in range(count)]


async def test_every_stream_begins_with_the_full_list() -> None:
    async with fed(Script([[GOOD, BAD], asyncio.Event()])) as feed:
        for _ in range(3):
            assert await take(feed.lists(), 1) == [(GOOD, BAD)]


async def test_a_stream_waits_for_the_first_list() -> None:
    ready = asyncio.Event()
    async with fed(Script([ready, [GOOD]])) as feed:
        first = asyncio.ensure_future(anext(feed.lists()))
        await asyncio.sleep(0.02)
        assert not first.done()
        ready.set()
        assert await first == (GOOD,)


async def test_changes_reach_all_streams() -> None:
    change = asyncio.Event()
    worse = DeviceHealth("node-1", "gpu-0", Health.UNHEALTHY, "hot", check_timeout=3600)
    async with fed(Script([[GOOD], change, [worse]])) as feed:
        streams = [feed.lists(), feed.lists()]
        assert [await take(stream, 1) for stream in streams] == [[(GOOD,)]] * 2
        change.set()
        assert [await take(stream, 1) for stream in streams] == [[(worse,)]] * 2


async def test_an_empty_list_is_a_list() -> None:
    async with fed(ConstantHealth(())) as feed:
        assert await take(feed.lists(), 1) == [()]


async def test_the_list_is_repeated_within_the_shortest_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []
    timeout = asyncio.timeout

    def noting(pause: float | None) -> asyncio.Timeout:
        pauses.append(pause)
        return timeout(None if pause is None else 0)

    devices = [DeviceHealth("p", str(seconds), Health.HEALTHY, check_timeout=seconds) for seconds in (30, 12, 60)]
    async with fed(ConstantHealth(devices)) as feed:
        lists = feed.lists()
        await take(lists, 1)
        monkeypatch.setattr("dra_driver.kubelet.health.asyncio.timeout", noting)
        assert await take(lists, 3) == [tuple(devices)] * 3
        monkeypatch.undo()
    assert pauses == [4.0] * 3


@pytest.mark.parametrize(
    ("checked_at", "age", "expected"),
    [
        pytest.param(0.0, 30, (Health.HEALTHY, "fine"), id="at-its-timeout"),
        pytest.param(0.0, 31, (Health.UNKNOWN, "not checked for 31 s, last: Healthy, fine"), id="too-old"),
        pytest.param(None, 10**9, (Health.HEALTHY, "fine"), id="known-without-checking"),
    ],
)
async def test_a_repetition_does_not_vouch_for_a_monitor_that_hangs(
    checked_at: float | None, age: float, expected: tuple[Health, str]
) -> None:
    clock = Clock(0.0)
    device = DeviceHealth("p", "d", Health.HEALTHY, "fine", checked_at, check_timeout=30)
    async with fed(ConstantHealth([device]), clock) as feed:
        assert await take(feed.lists(), 1) == [(device,)]
        clock.now = age
        ((later,),) = await take(feed.lists(), 1)
    assert (later.health, later.message) == expected
    assert later.checked_at == checked_at


async def test_a_source_that_fails_ends_streams_and_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    fail = asyncio.Event()
    source = Script([[GOOD], fail, EnvironmentFault("NVML is gone")], [[BAD], asyncio.Event()])
    async with fed(source) as feed:
        lists = feed.lists()
        await take(lists, 1)
        fail.set()
        with pytest.raises(EnvironmentFault, match="NVML is gone"):
            await take(lists, 2)
        await eventually(lambda: source.asked == 2)
        assert await take(feed.lists(), 1) == [(BAD,)]
    assert "device health is unknown, asking again in 0.01 s: NVML is gone" in caplog.text


async def test_a_bug_in_a_source_is_logged_and_ends_streams(caplog: pytest.LogCaptureFixture) -> None:
    source = Script([ZeroDivisionError("division by zero")])
    async with fed(source) as feed:
        with pytest.raises(EnvironmentFault, match="the health source failed: ZeroDivisionError: division by zero"):
            await take(feed.lists(), 1)
        await eventually(lambda: source.asked == 2)
    assert any(record.exc_info for record in caplog.records)


async def test_an_unsupported_source_is_not_asked_again() -> None:
    source = Script([HealthUnsupported("no NVML on this node")])
    async with fed(source) as feed:
        for _ in range(2):
            with pytest.raises(HealthUnsupported):
                await take(feed.lists(), 1)
        await asyncio.sleep(0.05)
    assert source.asked == 1


async def test_the_kubelets_limit(caplog: pytest.LogCaptureFixture) -> None:
    devices = [DeviceHealth("p", str(number), Health.HEALTHY) for number in range(MAX_DEVICES + 1)]
    async with fed(ConstantHealth(devices)) as feed:
        ((*sent,),) = await take(feed.lists(), 1)
    assert len(sent) == MAX_DEVICES
    assert "16385 devices report health, the kubelet takes the first 16384" in caplog.text


@asynccontextmanager
async def stream(root: Path, feed: HealthFeed, messages: ModuleType, clock: Clock) -> AsyncIterator[Any]:
    server = new_server(health_handlers(feed, clock))
    address = grpc_address(root / "health.sock")
    server.add_insecure_port(address)
    await server.start()
    channel = new_channel(address)
    try:
        ask = streamed(channel, service(messages.DESCRIPTOR, "DRAResourceHealth"), "NodeWatchResources")
        yield ask(messages.NodeWatchResourcesRequest())
    finally:
        await channel.close(None)
        await server.stop(None)


@pytest.mark.parametrize("messages", VERSIONS)
async def test_on_the_wire(root: Path, messages: ModuleType) -> None:
    clock = Clock(1_700_000_123.9)
    checked = DeviceHealth("node-1", "gpu-2", Health.UNKNOWN, "", checked_at=1_700_000_100.5, check_timeout=30)
    async with fed(ConstantHealth([GOOD, BAD, checked]), clock) as feed, stream(root, feed, messages, clock) as answers:
        answer = await answers.read()
        feed.close()
        assert await answers.read() is grpc.aio.EOF
    assert [
        (
            device.device.pool_name,
            device.device.device_name,
            messages.HealthStatus.Name(device.health),
            device.last_updated_time,
            device.health_check_timeout_seconds,
            device.message,
        )
        for device in answer.devices
    ] == [
        ("node-1", "gpu-0", "HEALTHY", 1_700_000_123, 3600, ""),
        ("node-1", "gpu-1", "UNHEALTHY", 1_700_000_123, 3600, "XID 79: GPU has fallen off the bus"),
        ("node-1", "gpu-2", "UNKNOWN", 1_700_000_100, 30, ""),
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(HealthUnsupported("no NVML on this node"), grpc.StatusCode.UNIMPLEMENTED, id="unsupported"),
        pytest.param(EnvironmentFault("NVML is gone"), grpc.StatusCode.UNAVAILABLE, id="failing"),
    ],
)
async def test_status_of_a_stream_without_lists(root: Path, error: Exception, code: grpc.StatusCode) -> None:
    clock = Clock()
    async with (
        fed(Script([error], [error], [error])) as feed,
        stream(root, feed, dra_health_v1_pb2, clock) as answers,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answers.read()
    assert (caught.value.code(), caught.value.details()) == (code, str(error))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        pytest.param("a" * 1024, "a" * 1024, id="fits"),
        pytest.param("a" * 1025, "a" * 1021 + "...", id="one-too-many"),
        pytest.param("ü" * 512, "ü" * 512, id="bytes-fit"),
        pytest.param("ü" * 513, "ü" * 510 + "...", id="bytes-not-characters"),
        pytest.param("", "", id="empty"),
        pytest.param("\ud800", "?", id="not-text"),
    ],
)
def test_cut_message(text: str, cut: str) -> None:
    assert cut_message(text) == cut


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=200, max_size=1500))
def test_cut_messages_are_prefixes_of_at_most_1024_bytes(text: str) -> None:
    cut = cut_message(text)
    assert len(cut.encode()) <= 1024
    if len(text.encode()) <= 1024:
        assert cut == text
    else:
        assert cut.endswith("...")
        assert text.startswith(cut[:-3])
        # No more was cut than the limit and one character ask for.
        assert len(cut.encode()) > 1024 - 4
