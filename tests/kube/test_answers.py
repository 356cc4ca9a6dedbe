"""An answer with a good status that is not what was asked for: no answer, and nothing behind the client falls."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dra_driver.kube.answers import read_json
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import NotFound, Unavailable, from_answer
from dra_driver.kube.resources import NODES, Resource
from dra_driver.kube.watch import parse
from tests.kube.fake_apiserver import FakeApiServer, Fault

DEEP = '{"a":' + "[" * 200_000
META = {"name": "n", "uid": "u", "resourceVersion": "1"}
REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

NOT_OBJECTS = {
    "null": "null",
    "list": "[]",
    "text": '"ok"',
    "number": "7",
    "empty": "{}",
    "metadata-null": '{"metadata": null}',
    "no-uid": '{"metadata": {"name": "n"}}',
    "no-name": '{"metadata": {"uid": "u"}}',
    "uid-is-a-number": '{"metadata": {"name": "n", "uid": 7}}',
    "too-deep": DEEP,
}
NOT_LISTS = {
    **{name: NOT_OBJECTS[name] for name in ("null", "list", "text", "empty", "metadata-null", "too-deep")},
    "no-resource-version": '{"metadata": {}, "items": []}',
    "items-no-list": '{"metadata": {"resourceVersion": "1"}, "items": {}}',
    "item-null": '{"metadata": {"resourceVersion": "1"}, "items": [null]}',
    "item-without-uid": '{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "n"}}]}',
}
BODY = {"metadata": META}

CALLS: dict[str, Callable[[ApiClient], Awaitable[Any]]] = {
    "get": lambda client: client.get(NODES, "n"),
    "create": lambda client: client.create(NODES, {"metadata": {"name": "n"}}),
    "create-generated": lambda client: client.create(NODES, {"metadata": {"generateName": "n-"}}),
    "update": lambda client: client.update(NODES, BODY),
    "patch": lambda client: client.patch(NODES, "n", {"spec": {}}),
    "modify": lambda client: client.modify(NODES, "n", None, lambda found: found),
}


@pytest.mark.parametrize("body", NOT_OBJECTS.values(), ids=NOT_OBJECTS.keys())
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
async def test_what_is_no_object_is_no_answer(
    client: ApiClient, fake: FakeApiServer, call: Callable[[ApiClient], Awaitable[Any]], body: str
) -> None:
    fake.faults.append(Fault(status=200, body=body))
    with pytest.raises(Unavailable, match="the answer is not") as caught:
        await call(client)
    assert caught.value.status == 200
    assert "/api/v1/nodes" in caught.value.path
    assert len(fake.requests) == 1, "an answer came: the request may have had its effect and is not repeated here"


@pytest.mark.parametrize("body", NOT_LISTS.values(), ids=NOT_LISTS.keys())
async def test_what_is_no_list_is_no_answer(client: ApiClient, fake: FakeApiServer, body: str) -> None:
    fake.faults.append(Fault(status=200, body=body))
    with pytest.raises(Unavailable, match="the answer is not"):
        await client.list(NODES)


async def test_a_list_whose_items_are_null_is_empty(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault(status=200, body='{"metadata": {"resourceVersion": "7"}, "items": null}'))
    listed = await client.list(NODES)
    assert (listed.items, listed.resource_version) == ((), "7")


async def test_a_review_has_neither_name_nor_uid(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault(status=201, body='{"status": {"allowed": true}, "metadata": {}}'))
    assert (await client.create(REVIEWS, {"spec": {}}))["status"] == {"allowed": True}


async def test_a_deletion_is_answered_with_a_status(client: ApiClient, fake: FakeApiServer) -> None:
    fake.faults.append(Fault("DELETE", status=200, body='{"kind": "Status", "metadata": {}, "status": "Success"}'))
    assert (await client.delete(NODES, "n"))["status"] == "Success"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ADDED", "object": None},
        {"type": "ADDED", "object": []},
        {"type": "ADDED", "object": {"metadata": {"resourceVersion": "1"}}},
        {"type": "MODIFIED", "object": {"metadata": {"resourceVersion": "1", "name": "n"}}},
        {"type": "BOOKMARK", "object": {"metadata": {}}},
        {"type": "ERROR", "object": ["x"]},
    ],
    ids=["null", "list", "nameless", "no-uid", "bookmark-without-version", "error-is-a-list"],
)
def test_what_is_no_watch_event(event: dict[str, Any]) -> None:
    with pytest.raises(Unavailable, match=r"not a watch event|not an API object"):
        parse(json.dumps(event).encode(), "/x")


def test_a_watch_line_that_is_too_deep() -> None:
    with pytest.raises(Unavailable, match="not a watch event"):
        parse(DEEP.encode(), "/x")


def test_deep_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(DEEP.encode())


@pytest.mark.parametrize(
    "body",
    [DEEP, '{"details": {"causes": 5}}', '{"details": {"causes": [null]}}', '{"details": []}', "[1]", "null"],
    ids=["too-deep", "causes-no-list", "cause-null", "details-no-object", "list", "null"],
)
def test_an_odd_explanation_does_not_hide_the_status(body: str) -> None:
    error = from_answer(404, body.encode(), verb="get", path="/x")
    assert isinstance(error, NotFound)
    assert error.causes == ()
