"""The local copy stays right whatever the order of lists, events and our own writes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.kube.store import Change, Store


def obj(name: str, version: int, uid: str | None = None, namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


def told(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.kind, change.key) for change in changes]


def test_a_relist_reports_deletions_that_no_event_told() -> None:
    store = Store()
    assert told(store.replace([obj("a", 1), obj("b", 2, namespace="ns")], "5")) == [("ADDED", "a"), ("ADDED", "ns/b")]
    assert told(store.replace([obj("a", 7), obj("c", 8)], "9")) == [
        ("DELETED", "ns/b"),
        ("MODIFIED", "a"),
        ("ADDED", "c"),
    ]
    assert told(store.replace([obj("a", 7), obj("c", 8)], "10")) == []


def test_an_object_replaced_under_its_name_is_a_deletion_and_an_addition() -> None:
    store = Store()
    store.replace([obj("a", 1, "old")], "1")

    assert told(store.replace([obj("a", 5, "new")], "6")) == [("DELETED", "a"), ("ADDED", "a")]


def test_an_own_write_stands_until_the_stream_has_passed_it() -> None:
    store = Store()
    store.replace([obj("a", 5)], "5")
    store.wrote(obj("a", 9))

    assert store.put(obj("a", 7)) == []
    assert store.get("a") == obj("a", 9)
    assert store.put(obj("a", 9)) == []
    assert told(store.put(obj("a", 12))) == [("MODIFIED", "a")]


def test_an_own_creation_survives_a_list_taken_before_it() -> None:
    store = Store()
    store.replace([], "5")
    store.wrote(obj("a", 9))

    assert store.replace([], "8") == []
    assert told(store.replace([], "10")) == [("DELETED", "a")]


def test_an_answer_that_comes_after_the_stream_has_passed_brings_nothing_back() -> None:
    store = Store()
    store.replace([], "5")
    store.put(obj("a", 9))
    store.remove(obj("a", 10))
    store.seen("10")
    store.wrote(obj("a", 9))

    assert store.get("a") is None


def test_what_we_deleted_is_not_brought_back_by_a_late_event() -> None:
    store = Store()
    store.replace([obj("a", 5)], "5")
    store.deleted(obj("a", 5))

    assert store.put(obj("a", 7)) == []
    assert store.remove(obj("a", 8)) == []
    assert told(store.put(obj("a", 9, "uid-again"))) == [("ADDED", "a")]


def test_a_deletion_of_an_earlier_namesake_changes_nothing() -> None:
    store = Store()
    store.replace([obj("a", 5, "new")], "5")

    assert store.remove(obj("a", 6, "old")) == []
    assert len(store) == 1


def test_a_server_restored_from_a_backup_is_believed() -> None:
    store = Store()
    store.replace([obj("a", 500), obj("b", 600)], "600")

    assert told(store.replace([obj("a", 90)], "100")) == [("DELETED", "b"), ("MODIFIED", "a")]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["write", "remove"]))), st.data())
def test_any_interleaving_of_own_writes_and_their_events_ends_equal_to_the_server(
    steps: list[tuple[str, str]], data: st.DataObject
) -> None:
    store = Store()
    store.replace([], "0")
    server: dict[str, dict[str, Any]] = {}
    pending: list[tuple[str, dict[str, Any]]] = []

    def deliver() -> None:
        kind, event = pending.pop(0)
        store.put(event) if kind == "put" else store.remove(event)
        store.seen(event["metadata"]["resourceVersion"])

    for version, (name, step) in enumerate(steps, start=1):
        if step == "write":
            uid = server[name]["metadata"]["uid"] if name in server else f"{name}-{version}"
            server[name] = obj(name, version, uid)
            pending.append(("put", server[name]))
            for _ in range(data.draw(st.integers(0, len(pending)))):
                deliver()
            store.wrote(obj(name, version, uid))
        elif name in server:
            gone = server.pop(name)
            pending.append(("remove", obj(name, version, gone["metadata"]["uid"])))
            for _ in range(data.draw(st.integers(0, len(pending)))):
                deliver()
            store.deleted(gone)
        assert {o["metadata"]["name"]: o for o in store} == server
    while pending:
        deliver()
    assert {o["metadata"]["name"]: o for o in store} == server
