"""Framing of watch streams, and what the client makes of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import Gone, Unavailable
from dra_driver.kube.resources import NODES
from dra_driver.kube.watch import LineSplitter, parse
from tests.kube.fake_apiserver import FakeApiServer, Fault


@given(
    lines=st.lists(st.binary(min_size=1, max_size=40).filter(lambda b: b"\n" not in b and bool(b.strip()))),
    data=st.data(),
)
def test_any_chunking_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter, found = LineSplitter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]

    assert found == lines


def test_a_line_without_its_end_is_not_reported() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b'{"a"') == []
    assert splitter.feed(b":1}\n{") == [b'{"a":1}']


@pytest.mark.parametrize(
    "line",
    [b"<html>", b"[]", b"{}", b'{"type":"ADDED","object":{"metadata":{}}}'],
    ids=["html", "list", "empty", "bare"],
)
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    with pytest.raises(Unavailable, match="not a watch event"):
        parse(line, "/x")


async def test_events_larger_than_any_buffer_and_in_tiny_pieces_arrive_whole(
    client: ApiClient, fake: FakeApiServer
) -> None:
    big = {"metadata": {"name": "big", "annotations": {"a": "x" * 3_000_000}}}
    small = {"metadata": {"name": "small"}}
    fake.put("nodes", small)
    fake.chunk = 7
    start = fake.objects("nodes")[0]["metadata"]["resourceVersion"]
    fake.remove("nodes", "small")
    seen = []
    async for event in client.watch(NODES, resource_version=start):
        seen.append((event.type, event.object["metadata"]["name"]))
        if event.type == "DELETED":
            fake.chunk = 1 << 16
            fake.put("nodes", big)
        else:
            assert len(json.dumps(event.object)) > 3_000_000
            break

    assert seen == [("DELETED", "small"), ("ADDED", "big")]


async def test_a_watch_ends_with_its_time(client: ApiClient) -> None:
    assert [e async for e in client.watch(NODES, resource_version="100", timeout_seconds=1)] == []


async def test_bookmarks_arrive(client: ApiClient, fake: FakeApiServer) -> None:
    fake.bookmark_every = 0.05
    async for event in client.watch(NODES, resource_version="100"):
        assert (event.type, event.resource_version) == ("BOOKMARK", "100")
        break


async def test_an_expired_version_is_gone(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("nodes", {"metadata": {"name": "n"}})
    fake.compact()

    with pytest.raises(Gone, match="too old resource version: 1"):
        async for _ in client.watch(NODES, resource_version="1"):
            pass


async def test_a_connection_that_breaks_in_the_middle_is_unavailable(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("nodes", {"metadata": {"name": "n"}})
    stream = client.watch(NODES, resource_version="100")
    assert (await anext(stream)).type == "ADDED"
    fake.break_watches()

    with pytest.raises(Unavailable) as caught:
        await anext(stream)

    assert caught.value.reason == "ConnectionLost"


async def test_a_broken_connection_is_unavailable(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault("WATCH", abort=True, times=5))  # the transport itself tries a second time

    with pytest.raises(Unavailable) as caught:
        async for _ in client.watch(NODES, resource_version="100", timeout_seconds=1):
            pass

    assert caught.value.reason == "ConnectionLost"
