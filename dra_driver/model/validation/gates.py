"""What depends on the Kubernetes release: limits and feature gates, and the fields that a gate that is off takes away.

Source: pkg/apis/resource/types.go and pkg/apis/resource/validation of 1.34.3, 1.35.0, 1.36.0 and 1.37.2, pkg/features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dra_driver.errors import InputError

MINORS: Final = (34, 35, 36, 37)

_ON_SINCE: Final[dict[str, int | None]] = {
    "DRADeviceTaints": 36,
    "DRAPartitionableDevices": 36,
    "DRAConsumableCapacity": 36,
    "DRADeviceBindingConditions": 36,
    "DRAResourceClaimDeviceStatus": 33,
    "DRAListTypeAttributes": None,
    "DRANodeAllocatableResources": None,
    "DRAOptionalNodeOperations": None,
    "DRADeviceCompatibilityGroups": None,
    "DRAPartitionableDevicesType": None,
    "DRAFractionalCapacityRange": None,
}
"""Gate -> first minor in which a stock cluster has it on, None when none has."""

_KNOWN_SINCE: Final = {
    "DRAListTypeAttributes": 36,
    "DRANodeAllocatableResources": 37,  # 1.36 had another field under the same gate
    "DRAOptionalNodeOperations": 37,
    "DRADeviceCompatibilityGroups": 37,
    "DRAPartitionableDevicesType": 37,
    "DRAFractionalCapacityRange": 37,
}

LIST_MEMBERS: Final = ("ints", "bools", "strings", "versions")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one Kubernetes minor (34 for 1.34) with its gates; unnamed gates have the release's default.

    Raises:
        InputError: no such minor or gate, or the gate does not exist in that minor.
    """

    minor: int = 37
    gates: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.minor not in MINORS:
            raise InputError(f"Kubernetes 1.{self.minor} is not supported", hint="one of 1.34, 1.35, 1.36, 1.37")
        for gate, on in self.gates.items():
            if gate not in _ON_SINCE:
                raise InputError(f"{gate} is not a feature gate that matters here", hint=", ".join(sorted(_ON_SINCE)))
            if on and self.minor < _KNOWN_SINCE.get(gate, 0):
                raise InputError(f"Kubernetes 1.{self.minor} has no feature gate {gate}")

    def on(self, gate: str) -> bool:
        """Whether ``gate`` is on."""
        since = _ON_SINCE[gate]
        return self.gates.get(gate, since is not None and self.minor >= since)

    @property
    def declarative(self) -> bool:
        """Rules that are declared in the API's types replace the written ones, with other texts, since 1.37."""
        return self.minor >= 37

    @property
    def max_devices_with_extras(self) -> int:
        """Devices in a slice as soon as one of them has taints, counters or lists."""
        return 128 if self.minor < 35 else 64

    @property
    def max_taints(self) -> int:
        return 4 if self.minor < 35 else 16

    @property
    def taint_effects(self) -> tuple[str, ...]:
        return ("NoExecute", "NoSchedule") if self.minor < 35 else ("NoExecute", "NoSchedule", "None")

    def key_path(self, map_path: str, key: str) -> str:
        """Where a bad map key is reported: at its entry up to 1.35, at the map since."""
        return f"{map_path}[{key}]" if self.minor < 36 else map_path


_DEVICE_FIELDS: Final = (
    (("DRADeviceTaints",), ("taints",)),
    (("DRAPartitionableDevices",), ("consumesCounters", "nodeName", "nodeSelector", "allNodes")),
    (
        ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
        ("bindingConditions", "bindingFailureConditions", "bindsToNode"),
    ),
    (("DRAConsumableCapacity",), ("allowMultipleAllocations",)),
    (("DRANodeAllocatableResources",), ("nodeAllocatableResources",)),
)
_SPEC_FIELDS: Final = (
    (("DRAPartitionableDevices",), ("sharedCounters", "perDeviceNodeSelection")),
    (("DRAPartitionableDevicesType",), ("partitionTypeAttribute",)),
    (("DRAOptionalNodeOperations",), ("skipNodeOperations",)),
)


def drop_disabled(spec: Mapping[str, Any], rules: Rules) -> tuple[dict[str, Any], list[str]]:
    """A slice's spec as the API server sees it after it has silently removed fields of disabled features.

    Returns:
        The spec, and the paths of what was removed and had content.
    """
    dropped: list[str] = []
    kept = _without(spec, "spec", _SPEC_FIELDS, rules, dropped)
    if isinstance(kept.get("devices"), list):
        kept["devices"] = [
            _device(device, f"spec.devices[{index}]", rules, dropped) if isinstance(device, dict) else device
            for index, device in enumerate(kept["devices"])
        ]
    return kept, dropped


def _device(device: dict[str, Any], path: str, rules: Rules, dropped: list[str]) -> dict[str, Any]:
    kept = _without(device, path, _DEVICE_FIELDS, rules, dropped)
    nested = (
        ("DRAListTypeAttributes", "attributes", LIST_MEMBERS),
        ("DRAConsumableCapacity", "capacity", ("requestPolicy",)),
    )
    for gate, key, names in nested:
        if not rules.on(gate) and isinstance(kept.get(key), dict):
            kept[key] = {
                name: _without(member, f"{path}.{key}[{name}]", (((gate,), names),), rules, dropped)
                if isinstance(member, dict)
                else member
                for name, member in kept[key].items()
            }
    if not rules.on("DRADeviceCompatibilityGroups") and isinstance(kept.get("consumesCounters"), list):
        gated = ((("DRADeviceCompatibilityGroups",), ("compatibilityGroups",)),)
        kept["consumesCounters"] = [
            _without(entry, f"{path}.consumesCounters[{index}]", gated, rules, dropped)
            if isinstance(entry, dict)
            else entry
            for index, entry in enumerate(kept["consumesCounters"])
        ]
    return kept


def _without(
    raw: Mapping[str, Any],
    path: str,
    gated: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...],
    rules: Rules,
    dropped: list[str],
) -> dict[str, Any]:
    gone = set(_off(gated, rules))
    dropped += [f"{path}.{name}" for name, value in raw.items() if name in gone and value not in (None, [], {})]
    return {name: value for name, value in raw.items() if name not in gone}


def _off(gated: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...], rules: Rules) -> Iterator[str]:
    for gates, names in gated:
        if not all(rules.on(gate) for gate in gates):
            yield from names
