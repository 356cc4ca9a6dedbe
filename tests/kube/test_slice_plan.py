"""The rules of the upstream slice controller, case by case: which slices are kept, the generation, the names."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.kube.slice_plan import Plan, Pool, generate_name, index_of, plan

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "u1", "controller": True}
POOL = Pool("gpu.example.com", "node-a", OWNER)


def content(*names: str) -> dict[str, Any]:
    return {"driver": POOL.driver, "nodeName": POOL.node, "devices": [{"name": n} for n in names]}


def stored(
    index: int,
    *devices: str,
    generation: int = 3,
    count: int = 2,
    pool: str = "node-a",
    suffix: str = "x",
    owner: dict[str, Any] | None = None,
    name: str = "",
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name or f"{index:05x}-gpu.example.com-node-a-{suffix}",
            "uid": f"uid-{index}{suffix}",
            "resourceVersion": "1",
            "ownerReferences": [owner or OWNER],
            "labels": {"kept": "yes"},
        },
        "spec": content(*devices) | {"pool": {"name": pool, "generation": generation, "resourceSliceCount": count}},
    }


def summary(result: Plan) -> tuple[int, list[str], list[int], list[int]]:
    return (
        result.generation,
        [obj["metadata"]["name"][:5] + obj["metadata"]["name"][-2:] for obj in result.delete],
        [write.index for write in result.update],
        [write.index for write in result.create],
    )


WANTED = [content("a"), content("b")]


@pytest.mark.parametrize(
    ("existing", "wanted", "expected"),
    [
        pytest.param([], WANTED[:1], (1, [], [], [0]), id="first-publication"),
        pytest.param([], WANTED, (1, [], [], [0, 1]), id="first-publication-of-two"),
        pytest.param([stored(0, "a"), stored(1, "b")], WANTED, (3, [], [], []), id="nothing-to-do"),
        pytest.param([stored(0, "z"), stored(1, "b")], WANTED, (3, [], [0], []), id="one-update-keeps-the-generation"),
        pytest.param([stored(0, "z"), stored(1, "y")], WANTED, (4, [], [0, 1], []), id="two-updates"),
        pytest.param([stored(0, "a")], WANTED, (4, [], [0], [1]), id="one-missing"),
        pytest.param([stored(0, "a", count=1)], WANTED, (4, [], [0], [1]), id="one-more"),
        pytest.param([stored(0, "a"), stored(1, "b")], WANTED[:1], (3, ["00001-x"], [0], []), id="one-less"),
        pytest.param(
            [stored(0, "a", generation=2), stored(1, "b")],
            WANTED,
            (4, ["00000-x"], [1], [0]),
            id="old-generation-is-obsolete",
        ),
        pytest.param(
            [stored(0, "a"), stored(0, "a", suffix="y"), stored(1, "b")],
            WANTED,
            (3, ["00000-y"], [], []),
            id="index-taken-twice",
        ),
        pytest.param(
            [stored(0, "a"), stored(1, "b"), stored(0, "c", pool="other", suffix="z")],
            WANTED,
            (3, ["00000-z"], [], []),
            id="another-pool-of-ours",
        ),
        pytest.param(
            [stored(0, "a", name="node-a-gpu.example.com-x"), stored(1, "b")],
            WANTED,
            (4, ["node--x"], [1], [0]),
            id="name-of-an-older-scheme",
        ),
        pytest.param([stored(0, "a"), stored(1, "b")], [], (3, ["00000-x", "00001-x"], [], []), id="nothing-wanted"),
        pytest.param(
            [stored(0, "a", owner=OWNER | {"uid": "old"}), stored(1, "b")],
            WANTED,
            (3, [], [0], []),
            id="owned-by-a-former-node",
        ),
    ],
)
def test_plan(
    existing: list[dict[str, Any]], wanted: list[dict[str, Any]], expected: tuple[int, list[str], list[int], list[int]]
) -> None:
    result = plan(existing, wanted, POOL)

    assert summary(result) == expected
    for write in (*result.update, *result.create):
        assert write.body["spec"] == wanted[write.index] | {
            "pool": {"name": "node-a", "generation": expected[0], "resourceSliceCount": len(wanted)}
        }


def test_a_wiped_pool_does_not_fall_back_behind_what_was_published() -> None:
    assert plan([], WANTED, POOL, last_generation=7).generation == 8


def test_a_created_slice_is_named_by_index_and_owned_by_the_node() -> None:
    body = plan([], WANTED, POOL).create[1].body

    assert body["metadata"] == {"generateName": "00001-gpu.example.com-node-a-", "ownerReferences": [OWNER]}
    assert (body["apiVersion"], body["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")


def test_an_update_keeps_labels_and_foreign_owners_and_replaces_the_former_node() -> None:
    existing = stored(0, "z", count=1, owner=OWNER | {"uid": "old"})
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "node-a", "uid": "o"}
    existing["metadata"]["ownerReferences"].append(other)

    (write,) = plan([existing], [content("a")], POOL).update

    assert write.body["metadata"]["ownerReferences"] == [other, OWNER]
    assert write.body["metadata"]["labels"] == {"kept": "yes"}
    assert write.body["metadata"]["resourceVersion"] == "1"


def test_what_the_server_is_known_to_reduce_is_left_alone() -> None:
    existing = [stored(0, "reduced"), stored(1, "b")]

    assert plan(existing, WANTED, POOL, accepted=lambda index, obj: index == 0).is_empty


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("00000-d-n-x", 1, 0),
        ("0000f-d-n-x", 16, 15),
        ("00010-d-n-x", 16, None),
        ("0000-d-n-x", 1, None),
        ("00000", 1, None),
        ("0000g-d", 99, None),
        ("+0001-d", 99, None),
        ("00000-d", 0, None),
        ("100000-d", 0x100001, 0x100000),
    ],
)
def test_the_index_in_a_name(name: str, count: int, expected: int | None) -> None:
    assert index_of(name, count) == expected


def test_a_long_or_upper_case_name_stays_an_object_name() -> None:
    assert generate_name(255, 256, Pool("GPU.example.com", "n", OWNER)) == "000ff-gpu.example.com-n-"
    assert len(generate_name(0, 1, Pool("d" * 63, "n" * 63, OWNER))) == 58
