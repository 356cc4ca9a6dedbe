"""Rules of ``nodeAllocatableResources``: devices that use up CPU, memory or huge pages of their node (alpha in 1.37).

Source: resource.k8s.io NodeAllocatableResource; validateNodeAllocatableResources, Validate_NodeAllocatableMapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.model.field_error import Named, invalid, not_found, required
from dra_driver.model.validation.capacity import quantity
from dra_driver.model.validation.report import Report, by_key


def check_node_allocatable(
    report: Report, resources: Mapping[str, Any], capacity: Mapping[str, Any], path: str
) -> None:
    """Report what is wrong with the resources of one device that has ``capacity``."""
    for name, entry in by_key(resources):
        place = f"{path}[{name}]"
        if name not in {"cpu", "memory"} and not name.startswith("hugepages-"):
            report.add(invalid(place, Named(name), "must be a node allocatable resource name"))
        mapping, overhead = entry.get("mapping"), entry.get("overhead")
        if mapping is None and overhead is None:
            report.add(required(place, "at least one of mapping or overhead must be set"))
        if mapping is not None:
            _mapping(report, mapping, capacity, f"{place}.mapping")
        if overhead is not None:
            _overhead(report, overhead, f"{place}.overhead")


def _mapping(report: Report, mapping: Mapping[str, Any], capacity: Mapping[str, Any], path: str) -> None:
    key = mapping.get("capacityKey")
    multiplier, per_device = quantity(mapping, "capacityMultiplier"), quantity(mapping, "deviceMultiplier")
    if key is not None:
        if key == "":
            report.add(invalid(f"{path}.capacityKey", "", "capacityKey must not be an empty string"))
        elif key not in capacity:
            report.add(not_found(f"{path}.capacityKey", Named(key)))
        if multiplier is None:
            detail = "capacityMultiplier is required when capacityKey is set"
            report.add(required(f"{path}.capacityMultiplier", detail))
        elif multiplier.sign() <= 0:
            report.add(invalid(f"{path}.capacityMultiplier", str(multiplier), "must be positive"))
    if per_device is not None and per_device.sign() <= 0:
        report.add(invalid(f"{path}.deviceMultiplier", str(per_device), "must be positive"))
    if multiplier is not None and key is None:
        report.add(required(f"{path}.capacityKey", "capacityKey is required when capacityMultiplier is set"))
    present = [name for name in ("capacityKey", "deviceMultiplier") if mapping.get(name) is not None]
    if not present:
        report.declare(invalid(path, "", "must specify one of: `capacityKey`, `deviceMultiplier`"))
    elif len(present) > 1:
        shown = "{capacityKey, deviceMultiplier}"
        report.declare(invalid(path, shown, "must specify exactly one of: `capacityKey`, `deviceMultiplier`"))


def _overhead(report: Report, overhead: Mapping[str, Any], path: str) -> None:
    members = [(name, quantity(overhead, name)) for name in ("perPod", "perContainer")]
    if all(value is None for _, value in members):
        report.add(invalid(path, "", "at least one of perPod or perContainer must be set"))
    for name, value in members:
        if value is not None and value.sign() < 0:
            report.add(invalid(f"{path}.{name}", str(value), "must be non-negative"))
