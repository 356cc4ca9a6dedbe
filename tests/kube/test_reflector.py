"""The reflector against a server that ends, breaks, forgets and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.kube.backoff import Backoff
from dra_driver.kube.client import ApiClient
from dra_driver.kube.reflector import Reflector
from dra_driver.kube.resources import NODES, RESOURCE_SLICES
from dra_driver.kube.store import Change
from tests.kube.fake_apiserver import FakeApiServer, Fault, until


class Followed:
    """A running reflector and everything it reported."""

    def __init__(self, client: ApiClient, **options: Any) -> None:
        self.changes: list[tuple[str, str]] = []
        self.errors: list[EnvironmentFault] = []
        self.reflector = Reflector(
            client,
            options.pop("resource", NODES),
            on_change=self._change,
            on_error=lambda error, delay: self.errors.append(error),
            backoff=Backoff(0.01, 0.05),
            **options,
        )

    def _change(self, change: Change) -> None:
        self.changes.append((change.kind, change.key))

    @property
    def names(self) -> list[str]:
        return [o["metadata"]["name"] for o in self.reflector.store]


@asynccontextmanager
async def followed(client: ApiClient, **options: Any) -> AsyncIterator[Followed]:
    follow = Followed(client, **options)
    task = asyncio.create_task(follow.reflector.run())
    await follow.reflector.synced.wait()
    yield follow
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


async def test_follows_additions_changes_and_deletions(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("nodes", node("a"))
    async with followed(client) as follow:
        await until(lambda: fake.watching)
        fake.put("nodes", node("b"))
        fake.put("nodes", node("b", x="y"))
        fake.remove("nodes", "a")
        await until(lambda: len(follow.changes) == 4)

    assert follow.changes == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
    assert (follow.names, follow.reflector.relists) == (["b"], 1)


async def test_only_what_the_selector_matches(client: ApiClient, fake: FakeApiServer) -> None:
    for name in "ab":
        fake.put("resourceslices", {"metadata": {"name": name}, "spec": {"driver": name, "nodeName": "n"}})
    async with followed(client, resource=RESOURCE_SLICES, field_selector="spec.driver=a,spec.nodeName=n") as follow:
        assert follow.names == ["a"]


async def test_a_watch_that_ends_is_resumed_without_a_list(client: ApiClient, fake: FakeApiServer) -> None:
    async with followed(client, watch_seconds=1) as follow:
        await until(lambda: len(fake.calls("WATCH")) >= 2)
        fake.put("nodes", node("b"))
        await until(lambda: follow.names == ["b"])

    assert (follow.reflector.relists, follow.errors) == (1, [])


@pytest.mark.parametrize("missed", ["nothing", "changes"])
async def test_a_broken_watch_is_resumed_and_misses_nothing(
    client: ApiClient, fake: FakeApiServer, missed: str
) -> None:
    fake.put("nodes", node("a"))
    async with followed(client) as follow:
        await until(lambda: fake.watching)
        fake.break_watches()
        if missed == "changes":
            fake.remove("nodes", "a")
        fake.put("nodes", node("b"))
        await until(lambda: "b" in follow.names)

    assert follow.names == (["b"] if missed == "changes" else ["a", "b"])
    assert follow.reflector.relists == 1


async def test_after_expiry_everything_is_listed_and_the_deletion_reported(
    client: ApiClient, fake: FakeApiServer
) -> None:
    fake.put("nodes", node("a"))
    async with followed(client) as follow:
        await until(lambda: fake.watching)
        fake.faults.append(Fault("WATCH", status=503, times=3))
        fake.break_watches()
        fake.remove("nodes", "a")
        fake.put("nodes", node("b"))
        fake.compact()
        await until(lambda: follow.names == ["b"])

    assert follow.changes == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert follow.reflector.relists == 2


async def test_bookmarks_keep_the_position_fresh_across_a_compaction(client: ApiClient, fake: FakeApiServer) -> None:
    fake.bookmark_every = 0.05
    async with followed(client, field_selector="metadata.name=a") as follow:
        await until(lambda: fake.watching)
        fake.put("nodes", node("unrelated"))
        version = fake.objects("nodes")[0]["metadata"]["resourceVersion"]
        await until(lambda: follow.reflector._resume == version)
        fake.compact()
        fake.break_watches()
        await until(lambda: len(fake.calls("WATCH")) == 2)
        fake.put("nodes", node("a"))
        await until(lambda: follow.names == ["a"])

    assert follow.reflector.relists == 1


async def test_a_server_that_restarts_is_followed_again(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("nodes", node("a"))
    async with followed(client) as follow:
        await until(lambda: fake.watching)
        await fake.stop()
        fake.remove("nodes", "a")
        await until(lambda: len(follow.errors) >= 3)
        assert follow.reflector.last_error is not None
        await fake.start()
        await until(lambda: follow.names == [])
        assert follow.reflector.last_error is None

    assert follow.changes == [("ADDED", "a"), ("DELETED", "a")]
    assert follow.reflector.relists == 1


async def test_an_accepted_watch_ends_the_error_before_anything_happens(client: ApiClient, fake: FakeApiServer) -> None:
    async with followed(client) as follow:
        await until(lambda: fake.watching)
        fake.faults.append(Fault("WATCH", status=503, times=2))
        fake.break_watches()
        await until(lambda: follow.reflector.last_error)
        await until(lambda: follow.reflector.last_error is None)

    assert follow.reflector.relists == 1


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_an_unexpected_answer_leads_to_a_new_list(client: ApiClient, fake: FakeApiServer, status: int) -> None:
    async with followed(client) as follow:
        await until(lambda: fake.watching)
        fake.faults.append(Fault("WATCH", status=status))
        fake.break_watches()
        await until(lambda: follow.reflector.relists == 2)
        fake.put("nodes", node("b"))
        await until(lambda: follow.names == ["b"])


async def test_watches_that_end_at_once_are_slowed_down(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault("WATCH", status=200, times=1000))
    async with followed(client):
        await asyncio.sleep(0.3)

    assert 2 <= len(fake.calls("WATCH")) <= 30


async def test_an_error_in_the_callers_code_is_not_swallowed(client: ApiClient, fake: FakeApiServer) -> None:
    def broken(change: Change) -> None:
        raise ZeroDivisionError

    callback: Callable[[Change], None] = broken
    fake.put("nodes", node("a"))
    with pytest.raises(ZeroDivisionError):
        await Reflector(client, NODES, on_change=callback).run()


def test_backoff_doubles_up_to_its_cap_and_starts_over() -> None:
    backoff = Backoff(1.0, 30.0, uniform=lambda low, high: high)

    assert [backoff.next() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.next() == 1


def test_backoff_is_jittered_within_half_and_whole_and_never_overflows() -> None:
    backoff = Backoff(1.0, 30.0)
    delays = [backoff.next() for _ in range(2000)]

    assert all(15.0 <= delay <= 30.0 for delay in delays[5:])
    assert len(set(delays)) > 1000
