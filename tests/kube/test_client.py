"""The client's verbs, its repetitions, and how failures reach the caller."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
    from_answer,
)
from dra_driver.kube.resources import EVENTS, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.kube.fake_apiserver import FakeApiServer, Fault


def node(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (NODES.path("n"), "/api/v1/nodes/n"),
        (EVENTS.path(namespace="ns"), "/api/v1/namespaces/ns/events"),
        (RESOURCE_CLAIMS.path(), "/apis/resource.k8s.io/v1/resourceclaims"),
        (
            RESOURCE_CLAIMS.path("c", namespace="ns", subresource="status"),
            "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status",
        ),
        (RESOURCE_SLICES.path("a/b", namespace="ignored"), "/apis/resource.k8s.io/v1/resourceslices/a%2Fb"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


async def test_create_get_update_delete(client: ApiClient) -> None:
    created = await client.create(NODES, node("n"))
    created["metadata"]["labels"] = {"a": "b"}
    updated = await client.update(NODES, created)
    assert updated["metadata"]["labels"] == {"a": "b"}
    assert (await client.get(NODES, "n")) == updated

    await client.delete(NODES, "n", uid=updated["metadata"]["uid"])
    with pytest.raises(NotFound) as caught:
        await client.get(NODES, "n")
    assert (caught.value.status, caught.value.verb, caught.value.path) == (404, "get", "/api/v1/nodes/n")


async def test_conflicts_and_preconditions(client: ApiClient) -> None:
    created = await client.create(NODES, node("n"))
    with pytest.raises(AlreadyExists):
        await client.create(NODES, node("n"))
    await client.patch(NODES, "n", {"metadata": {"labels": {"x": "y"}}})
    with pytest.raises(Conflict):
        await client.update(NODES, created | {"metadata": created["metadata"] | {"labels": {"z": "z"}}})
    with pytest.raises(Conflict):
        await client.delete(NODES, "n", resource_version=created["metadata"]["resourceVersion"])


async def test_server_side_apply_creates_and_changes(client: ApiClient, fake: FakeApiServer) -> None:
    for value in ("1", "2"):
        await client.patch(NODES, "n", node("n", labels={"v": value}), kind="apply", field_manager="me", force=True)

    assert fake.objects("nodes")[0]["metadata"]["labels"] == {"v": "2"}
    assert fake.calls("PATCH")[0].query == {"fieldManager": "me", "force": "true"}
    assert fake.calls("PATCH")[0].headers["Content-Type"] == "application/apply-patch+yaml"


async def test_modify_reads_again_after_a_conflict(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("nodes", node("n", labels={"count": "0"}))
    await asyncio.gather(*(client.modify(NODES, "n", None, _count, tries=20) for _ in range(5)))

    assert fake.objects("nodes")[0]["metadata"]["labels"]["count"] == "5"


def _count(obj: dict[str, Any]) -> dict[str, Any]:
    obj["metadata"]["labels"]["count"] = str(int(obj["metadata"]["labels"]["count"]) + 1)
    return obj


async def test_modify_gives_up_after_its_tries_and_writes_nothing_for_none(
    client: ApiClient, fake: FakeApiServer
) -> None:
    fake.put("nodes", node("n", labels={"count": "0"}))
    fake.faults.append(Fault("PUT", times=9, status=409, body='{"reason": "Conflict", "message": "again"}'))
    with pytest.raises(Conflict):
        await client.modify(NODES, "n", None, _count, tries=3)
    assert len(fake.calls("PUT")) == 3
    await client.modify(NODES, "n", None, lambda obj: None)
    assert len(fake.calls("PUT")) == 3


async def test_a_list_follows_its_pages_and_fills_in_the_kind(client: ApiClient, fake: FakeApiServer) -> None:
    for index in range(7):
        fake.put("nodes", node(f"n{index}"))

    listed = await client.list(NODES, limit=3)

    assert [o["metadata"]["name"] for o in listed.items] == [f"n{i}" for i in range(7)]
    assert {(o["apiVersion"], o["kind"]) for o in listed.items} == {("v1", "Node")}
    assert [r.query.get("continue") for r in fake.calls("GET")] == [None, "107/3", "107/6"]
    assert listed.resource_version == "107"


async def test_an_expired_page_starts_the_list_over_in_one_piece(client: ApiClient, fake: FakeApiServer) -> None:
    for index in range(4):
        fake.put("nodes", node(f"n{index}"))
    gone = '{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}'
    fake.faults += [Fault("GET"), Fault("GET", status=410, body=gone)]

    listed = await client.list(NODES, limit=3)

    assert len(listed.items) == 4
    assert "limit" not in fake.calls("GET")[-1].query


async def test_an_empty_list_has_no_items(client: ApiClient) -> None:
    assert (await client.list(NODES)).items == ()


async def test_delete_collection_uses_its_selector(client: ApiClient, fake: FakeApiServer) -> None:
    for name in "ab":
        fake.put("resourceslices", {"metadata": {"name": name}, "spec": {"driver": name}})

    await client.delete_collection(RESOURCE_SLICES, field_selector="spec.driver=a")

    assert [o["metadata"]["name"] for o in fake.objects("resourceslices")] == ["b"]


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_429_is_obeyed_for_every_verb(client: ApiClient, fake: FakeApiServer, verb: str) -> None:
    fake.faults.append(Fault(status=429, headers={"Retry-After": "1"}, times=1))
    began = asyncio.get_running_loop().time()
    if verb == "get":
        fake.put("nodes", node("n"))
        await client.get(NODES, "n")
    else:
        await client.create(NODES, node("n"))

    assert asyncio.get_running_loop().time() - began >= 1.0
    assert len(fake.requests) == 2


async def test_429_beyond_the_callers_time_is_raised_at_once(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault(status=429, headers={"Retry-After": "60"}, body="slow down"))

    with pytest.raises(TooManyRequests) as caught:
        await client.get(NODES, "n", timeout=2.0)

    assert (caught.value.retry_after, caught.value.retryable) == (60.0, True)
    assert "HTTP 429: slow down" in str(caught.value)


async def test_retry_after_may_be_a_date(client: ApiClient, fake: FakeApiServer) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    fake.faults.append(Fault(status=429, headers={"Retry-After": date}))

    with pytest.raises(TooManyRequests) as caught:
        await client.get(NODES, "n", timeout=2.0)

    assert caught.value.retry_after == pytest.approx(300, abs=5)


@pytest.mark.parametrize(
    ("verb", "fault", "requests"),
    [
        pytest.param("get", Fault(status=500, times=2), 3, id="get-500-repeated"),
        pytest.param("get", Fault(abort=True), 2, id="get-broken-repeated"),
        pytest.param("delete", Fault(status=503), 2, id="delete-503-repeated"),
        pytest.param("create", Fault(status=503, headers={"Retry-After": "0"}), 2, id="create-503-when-asked"),
    ],
)
async def test_safe_repetitions(client: ApiClient, fake: FakeApiServer, verb: str, fault: Fault, requests: int) -> None:
    if verb != "create":
        fake.put("nodes", node("n"))
    fake.faults.append(fault)
    if verb == "get":
        await client.get(NODES, "n")
    elif verb == "delete":
        await client.delete(NODES, "n")
    else:
        await client.create(NODES, node("n"))

    assert len(fake.requests) == requests


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(abort=True)], ids=["500", "broken"])
async def test_a_create_whose_fate_is_unknown_is_not_repeated(
    client: ApiClient, fake: FakeApiServer, fault: Fault
) -> None:
    fake.faults.append(fault)

    with pytest.raises(Unavailable):
        await client.create(NODES, node("n"))

    assert len(fake.requests) == 1


async def test_a_server_that_comes_back_within_the_time_is_no_error(fake: FakeApiServer, client: ApiClient) -> None:
    fake.put("nodes", node("n"))
    await fake.stop()
    asking = asyncio.create_task(client.get(NODES, "n"))
    await asyncio.sleep(0.2)
    await fake.start()

    assert (await asking)["metadata"]["name"] == "n"


async def test_a_server_that_stays_away_is_named(fake: FakeApiServer, client: ApiClient) -> None:
    await fake.stop()

    with pytest.raises(Unavailable) as caught:
        await client.create(NODES, node("n"), timeout=0.3)

    assert (caught.value.status, caught.value.reason) == (0, "NotConnected")
    for part in ("post /api/v1/nodes", fake.url, "check that the API server runs"):
        assert part in str(caught.value)


async def test_a_silent_server_costs_the_callers_time_and_no_more(fake: FakeApiServer, client: ApiClient) -> None:
    fake.faults.append(Fault(delay=30))

    with pytest.raises(Unavailable, match=r"no answer from .* in time"):
        await client.get(NODES, "n", timeout=0.2)


async def test_an_answer_that_is_not_json_is_named(fake: FakeApiServer, client: ApiClient) -> None:
    fake.faults.append(Fault(status=200, body="<html>login"))

    with pytest.raises(Unavailable, match="the answer is not JSON: b'<html>login'"):
        await client.get(NODES, "n")


async def test_many_requests_run_at_the_same_time(fake: FakeApiServer, client: ApiClient) -> None:
    fake.put("nodes", node("n"))
    fake.faults.append(Fault("GET", times=50, delay=0.2))
    began = asyncio.get_running_loop().time()

    await asyncio.gather(*(client.get(NODES, "n") for _ in range(50)))

    assert asyncio.get_running_loop().time() - began < 50 * 0.2 / 2


async def test_a_redirect_is_not_followed(fake: FakeApiServer, client: ApiClient) -> None:
    fake.faults.append(Fault(status=302, headers={"Location": "http://elsewhere.invalid/"}))

    with pytest.raises(ApiError) as caught:
        await client.get(NODES, "n")

    assert caught.value.status == 302


async def test_impersonation_headers_are_sent(fake: FakeApiServer) -> None:
    import dataclasses

    config = dataclasses.replace(fake.config(), headers=(("Impersonate-User", "ann"),))
    fake.put("nodes", node("n"))
    async with ApiClient(config) as client:
        await client.get(NODES, "n")

    assert fake.requests[0].headers["Impersonate-User"] == "ann"


INVALID = (
    b'{"kind":"Status","code":422,"reason":"Invalid","message":"X is invalid","details":{"causes":'
    b'[{"reason":"FieldValueInvalid","message":"bad","field":"spec.a"}]}}'
)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        pytest.param(422, INVALID, Invalid, "X is invalid", id="invalid"),
        pytest.param(403, b'{"reason":"Forbidden","message":"no"}', Forbidden, "no", id="forbidden"),
        pytest.param(410, b'{"reason":"Expired","message":"old"}', Gone, "old", id="expired"),
        pytest.param(404, b"404 page not found\n", NotFound, "HTTP 404: 404 page not found", id="plain-404"),
        pytest.param(502, b"", Unavailable, "HTTP 502 without an explanation", id="empty-502"),
        pytest.param(418, b"[]", ApiError, "HTTP 418: []", id="strange"),
    ],
)
def test_answers_become_errors(status: int, body: bytes, kind: type[ApiError], message: str) -> None:
    error = from_answer(status, body, verb="get", path="/x")

    assert type(error) is kind
    assert error.server_message == message
    assert error.message == f"get /x: {message}"


def test_an_invalid_answer_names_its_fields() -> None:
    (cause,) = from_answer(422, INVALID, verb="put", path="/x").causes

    assert (cause.field, cause.reason, cause.message) == ("spec.a", "FieldValueInvalid", "bad")
