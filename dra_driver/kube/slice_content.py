"""What a slice holds, when two ResourceSlice contents mean the same, and what a server dropped from one, by field path.

Works on the JSON of ``spec``. The server's own notion of "unchanged" is followed: quantities compare by value, absent
equals empty, device order matters, and a taint's ``timeAdded`` is equal when one side leaves it out (the server fills
it) or both are within a second (it stores whole seconds). Source: k8s.io/dynamic-resource-allocation/resourceslice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from dra_driver.errors import InputError
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import CounterSet, Device

Json = Mapping[str, Any]


class SliceContent(Protocol):
    """One slice as the caller wants it; ``ResourceSliceSpec`` has this shape (its driver, pool and node are ours)."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """What is offered, in order of preference."""

    @property
    def shared_counters(self) -> tuple[CounterSet, ...]:
        """What the devices of the pool draw from."""


# Fields that a server drops silently (or refuses) while their feature gate is off. Source: k8s.io/kubernetes,
# pkg/registry/resource/resourceslice/strategy.go.
GATES: Mapping[str, str] = {
    "taints": "DRADeviceTaints",
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "perDeviceNodeSelection": "DRAPartitionableDevices",
    "partitionTypeAttribute": "DRAPartitionableDevicesType",
    "compatibilityGroups": "DRADeviceCompatibilityGroups",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "nodeAllocatableResources": "DRANodeAllocatableResources",
    "skipNodeOperations": "DRAOptionalNodeOperations",
    "ints": "DRAListTypeAttributes",
    "bools": "DRAListTypeAttributes",
    "strings": "DRAListTypeAttributes",
    "versions": "DRAListTypeAttributes",
}

_Mode = Literal["", "plain", "quantity"]
_QUANTITIES_BELOW = frozenset({"capacity", "counters", "nodeAllocatableResources"})
_MAPS = frozenset({"attributes", "capacity", "counters", "nodeAllocatableResources"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not stored as it was sent.

    Attributes:
        path: as the API server writes it, ``spec.devices[3].taints``.
        kind: ``dropped`` (gone), ``changed`` (another value) or ``added`` (not sent).
    """

    path: str
    kind: Literal["dropped", "changed", "added"]

    @property
    def gate(self) -> str | None:
        """The feature gate whose absence explains it, when there is one."""
        for part in reversed(self.path.split(".")):
            gate = GATES.get(part.split("[")[0])
            if gate is not None:
                return gate
        return None


def differences(sent: Json, stored: Json) -> Iterator[Difference]:
    """Where the stored ``spec`` deviates from the one that was sent; ``pool`` is left to the caller."""
    keys = [*sent, *(key for key in stored if key not in sent)]
    for key in keys:
        if key != "pool":
            yield from _compare(sent.get(key), stored.get(key), f"spec.{key}", _mode(key, ""))


def same(left: Json, right: Json) -> bool:
    """Whether two specs mean the same, ``pool`` left out."""
    return next(differences(left, right), None) is None


def with_times(desired: Json, stored: Json) -> Json:
    """``desired`` with the ``timeAdded`` that equal taints of the same device already have in ``stored``.

    A write without it would make the server stamp the taint anew, and tolerations would start over.
    """
    known = {
        (device["name"], taint.get("key"), taint.get("value") or "", taint.get("effect")): taint["timeAdded"]
        for device in stored.get("devices") or ()
        for taint in device.get("taints") or ()
        if taint.get("timeAdded")
    }
    if not known:
        return desired
    devices = []
    for device in desired.get("devices") or ():
        taints = []
        for taint in device.get("taints") or ():
            added = known.get((device["name"], taint.get("key"), taint.get("value") or "", taint.get("effect")))
            taints.append({**taint, "timeAdded": added} if added and not taint.get("timeAdded") else taint)
        devices.append({**device, "taints": taints} if taints else device)
    return {**desired, "devices": devices}


def _mode(key: str, inherited: _Mode) -> _Mode:
    if inherited:
        return inherited
    if key == "attributes":
        return "plain"
    return "quantity" if key in _QUANTITIES_BELOW else ""


def _compare(sent: Any, stored: Any, path: str, mode: _Mode) -> Iterator[Difference]:
    no_sent, no_stored = _empty(sent, mode), _empty(stored, mode)
    if no_sent or no_stored:
        if not (no_sent and no_stored):
            yield Difference(path, "dropped" if no_stored else "added")
    elif isinstance(sent, Mapping) and isinstance(stored, Mapping):
        yield from _compare_mappings(sent, stored, path, mode)
    elif _is_list(sent) and _is_list(stored):
        if len(sent) != len(stored):
            yield Difference(path, "changed")
            return
        for index, (mine, theirs) in enumerate(zip(sent, stored, strict=True)):
            yield from _compare(mine, theirs, f"{path}[{index}]", mode)
    elif not _equal_scalars(sent, stored, mode):
        yield Difference(path, "changed")


def _compare_mappings(sent: Json, stored: Json, path: str, mode: _Mode) -> Iterator[Difference]:
    in_map = path.rsplit(".", 1)[-1] in _MAPS
    for key in [*sent, *(key for key in stored if key not in sent)]:
        mine, theirs = sent.get(key), stored.get(key)
        if key == "timeAdded" and mode == "":
            if mine and theirs and not _within_a_second(mine, theirs):
                yield Difference(f"{path}.{key}", "changed")
            continue
        below = f"{path}[{key}]" if in_map else f"{path}.{key}"
        yield from _compare(mine, theirs, below, mode if in_map else _mode(key, mode))


def _empty(value: Any, mode: _Mode) -> bool:
    # An attribute may be the empty string; elsewhere the API leaves empty strings out.
    return value is None or (value == "" and mode != "plain") or (_is_list(value) and not value) or value == {}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _equal_scalars(left: Any, right: Any, mode: _Mode) -> bool:
    if left == right and type(left) is type(right):
        return True
    if mode != "quantity":
        return False
    try:
        return Quantity.parse(str(left)) == Quantity.parse(str(right))
    except InputError:
        return False


def _within_a_second(left: str, right: str) -> bool:
    try:
        delta = datetime.fromisoformat(left) - datetime.fromisoformat(right)
    except (ValueError, TypeError):
        return left == right
    return abs(delta.total_seconds()) <= 1.0
