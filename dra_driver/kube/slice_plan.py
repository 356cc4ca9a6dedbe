"""What to write so that a node's pool becomes what is wanted: a plain function from stored slices to writes.

The rules are those of the upstream slice controller (Kubernetes 1.36 and later), so that either can take over from the
other: the slice's index is the hexadecimal prefix of its name and its priority in allocation, obsolete slices go first,
the pool's generation grows unless one update is enough, and then all slices carry the new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.kube.resources import RESOURCE_SLICES
from dra_driver.kube.slice_content import same, with_times

Object = dict[str, Any]
Content = dict[str, Any]

_MIN_PREFIX = 5
_MAX_GENERATE_NAME = 58
"""The server cuts longer ones there (and adds five characters); cut here so that what is sent is what is used."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The one pool of one driver on one node; ``owner`` is an ``ownerReferences`` entry for the Node."""

    driver: str
    node: str
    owner: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.node


@dataclass(frozen=True, slots=True)
class Write:
    """One update or create: the slice's index, what to send, and what is stored now (None for a create)."""

    index: int
    body: Object
    stored: Object | None


@dataclass(frozen=True, slots=True)
class Plan:
    """In this order: delete, update, create.

    Attributes:
        generation: of the pool once the plan is carried out.
        changed: indexes whose stored content or owner is not as wanted, new generation aside.
    """

    generation: int
    delete: tuple[Object, ...]
    update: tuple[Write, ...]
    create: tuple[Write, ...]
    changed: frozenset[int]

    @property
    def is_empty(self) -> bool:
        return not (self.delete or self.update or self.create)


def plan(
    stored: Sequence[Object],
    wanted: Sequence[Content],
    pool: Pool,
    *,
    last_generation: int = 0,
    accepted: Callable[[int, Object], bool] = lambda index, existing: False,
) -> Plan:
    """Compares.

    Args:
        stored: all slices of this driver and node, of any pool.
        wanted: contents in order of their index; none means that no slice shall remain.
        last_generation: highest one this process has published; a pool that was wiped does not fall back behind it.
        accepted: whether the server has already answered this content with exactly what is stored, dropping fields.
    """
    of_pool = [s for s in stored if s["spec"]["pool"]["name"] == pool.name]
    generation = max((_generation(s) for s in of_pool), default=0)
    current: dict[int, Object] = {}
    obsolete = [s for s in stored if s["spec"]["pool"]["name"] != pool.name]
    for existing in sorted(of_pool, key=lambda s: str(s["metadata"]["name"])):
        index = index_of(existing["metadata"]["name"], len(wanted))
        if _generation(existing) == generation and index is not None and index not in current:
            current[index] = existing
        else:
            obsolete.append(existing)

    changed = frozenset(
        index
        for index, existing in current.items()
        if existing["spec"]["pool"].get("resourceSliceCount") != len(wanted)
        or pool.owner not in (existing["metadata"].get("ownerReferences") or ())
        or not (same(wanted[index], existing["spec"]) or accepted(index, existing))
    )
    keeps_generation = len(current) == len(wanted) and len(changed) <= 1
    if not keeps_generation:
        generation = max(generation, last_generation) + 1
    pool_json = {"name": pool.name, "generation": generation, "resourceSliceCount": len(wanted)}
    update = tuple(
        Write(index, _updated(existing, wanted[index], pool, pool_json), existing)
        for index, existing in sorted(current.items())
        if index in changed or not keeps_generation
    )
    create = tuple(
        Write(index, _created(index, len(wanted), content, pool, pool_json), None)
        for index, content in enumerate(wanted)
        if index not in current
    )
    return Plan(generation, tuple(obsolete), update, create, changed)


def index_of(name: str, count: int) -> int | None:
    """The index in a slice's name, None when the name is not one of a pool of ``count`` slices."""
    prefix, separator, _ = name.partition("-")
    if not separator or len(prefix) != _prefix_length(count) or not re.fullmatch("[0-9a-f]+", prefix):
        return None
    index = int(prefix, 16)
    return index if index < count else None


def generate_name(index: int, count: int, pool: Pool) -> str:
    """``<index>-<driver>-<node>-``; object names are lower-case even when a driver's name is not."""
    name = f"{index:0{_prefix_length(count)}x}-{pool.driver}-{pool.node}-".lower()
    return name[:_MAX_GENERATE_NAME]


def _prefix_length(count: int) -> int:
    return max(_MIN_PREFIX, len(f"{max(count - 1, 0):x}"))


def _generation(existing: Object) -> int:
    return int(existing["spec"]["pool"].get("generation") or 0)


def _created(index: int, count: int, content: Content, pool: Pool, pool_json: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"generateName": generate_name(index, count, pool), "ownerReferences": [dict(pool.owner)]},
        "spec": {**content, "pool": dict(pool_json)},
    }


def _updated(existing: Object, content: Content, pool: Pool, pool_json: Mapping[str, Any]) -> Object:
    # Labels, annotations and owners that others added stay; of owners only a former Node of the same name goes.
    others = [
        reference
        for reference in existing["metadata"].get("ownerReferences") or ()
        if (reference.get("kind"), reference.get("name")) != ("Node", pool.node)
    ]
    return {
        **existing,
        "metadata": {**existing["metadata"], "ownerReferences": [*others, dict(pool.owner)]},
        "spec": {**with_times(content, existing["spec"]), "pool": dict(pool_json)},
    }
