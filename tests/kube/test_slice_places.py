"""A change of one device changes one slice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.kube.slice_places import arrange, places_of

TAINTED = [{"key": "k", "effect": "NoSchedule"}]


def content(*names: str, **extra: Any) -> dict[str, Any]:
    return {"driver": "d", "devices": [{"name": name} for name in names], **extra}


def counters(*names: str) -> dict[str, Any]:
    return {"driver": "d", "sharedCounters": [{"name": name} for name in names]}


def chunks(names: list[str], size: int) -> list[dict[str, Any]]:
    return [content(*names[start : start + size]) for start in range(0, len(names), size)]


def names(contents: list[dict[str, Any]]) -> list[list[str]]:
    return [[e["name"] for e in c.get("devices", c.get("sharedCounters", []))] for c in contents]


def test_without_anything_published_the_callers_cuts_are_used() -> None:
    wanted = chunks(list("abcdef"), 2)

    assert arrange(wanted, {}, 0) == wanted


def test_a_device_that_goes_changes_its_slice_only_and_returns_to_it() -> None:
    all_devices = [f"gpu-{i:03}" for i in range(192)]
    published = chunks(all_devices, 64)
    without = [d for d in all_devices if d != "gpu-003"]

    gone = arrange(chunks(without, 64), places_of(published), 3)
    assert [a == b for a, b in zip(gone, published, strict=True)] == [False, True, True]
    assert gone[0]["devices"] == [{"name": n} for n in without[:63]]
    assert arrange(chunks(all_devices, 64), places_of(published), 3) == published


def test_a_slice_that_loses_all_devices_stays_empty_and_is_filled_again() -> None:
    published = [content("a1", "a2"), content("b1", "b2"), content("c1")]
    places = places_of(published)

    emptied = arrange([published[0], published[2]], places, 3)
    assert names(emptied) == [["a1", "a2"], [], ["c1"]]
    assert "devices" not in emptied[1]
    assert arrange(published, places, 3) == published


def test_newcomers_join_those_they_came_with() -> None:
    published = [content("a1"), content("b1")]

    assert names(arrange([content("a1"), content("b0", "b1", "b2")], places_of(published), 2)) == [
        ["a1"],
        ["b0", "b1", "b2"],
    ]


def test_newcomers_of_their_own_get_a_slice_at_the_end() -> None:
    published = [content("a1"), content("b1")]

    assert names(arrange([*published, content("c1")], places_of(published), 2)) == [["a1"], ["b1"], ["c1"]]


def test_another_order_is_the_callers_business() -> None:
    published = [content("a"), content("b")]
    wanted = [content("b"), content("a")]

    assert arrange(wanted, places_of(published), 2) == wanted


def test_counter_sets_and_devices_never_share_a_slice() -> None:
    published = [counters("c0"), content("a")]
    wanted = [counters("c0", "c1"), content("a", "b")]

    assert arrange(wanted, places_of(published), 2) == wanted


def test_a_slice_that_would_be_too_full_is_cut_anew() -> None:
    published = [content(*[f"a{i}" for i in range(100)]), content("z")]
    wanted = [
        content(*[f"a{i}" for i in range(50)]),
        content(*[f"a{i}" for i in range(50, 100)], "z"),
    ]
    assert names(arrange(wanted, places_of(published), 2)) == names(published)
    wanted[0]["devices"][0]["taints"] = TAINTED  # now 64 is the limit
    assert arrange(wanted, places_of(published), 2) == wanted


def test_mostly_empty_slices_are_cut_anew() -> None:
    published = [content(c) for c in "abcdefgh"]

    assert names(arrange([content("a")], places_of(published), 8)) == [["a"]]


def test_slices_with_further_fields_of_their_own_are_left_to_the_caller() -> None:
    published = [content("a"), content("b")]
    wanted = [content("a", partitionTypeAttribute="x/y"), content("b", "c")]

    assert arrange(wanted, places_of(published), 2) == wanted


@given(st.data())
def test_the_order_of_all_devices_is_always_the_callers(data: st.DataObject) -> None:
    everything = [f"d{i:02}" for i in range(24)]
    size = data.draw(st.integers(1, 8))
    published = chunks(everything, size)
    subset = [d for d in everything if data.draw(st.booleans(), label=d)]
    subset.insert(data.draw(st.integers(0, len(subset))), "new")
    wanted = chunks(subset, data.draw(st.integers(1, 8)))

    result = arrange(wanted, places_of(published), len(published))

    assert [name for part in names(result) for name in part] == subset
