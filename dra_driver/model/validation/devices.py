"""Rules of one device in a slice, apart from its attributes, capacity, counters and node-allocatable resources.

Source: resource.k8s.io Device; validateDevice, validateDeviceTaint, validateDeviceBindingParameters (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_driver.model.field_error import duplicate, invalid, not_supported, required
from dra_driver.model.names import validate_dns1123_label, validate_label_key, validate_label_value, validate_node_name
from dra_driver.model.validation.attributes import check_attributes, value_count
from dra_driver.model.validation.capacity import check_capacity
from dra_driver.model.validation.counters import check_consumption, check_slice_local_counters
from dra_driver.model.validation.node_allocatable import check_node_allocatable
from dra_driver.model.validation.node_selector import check_node_selector
from dra_driver.model.validation.report import Report, entries, items, text, within

_ATTRIBUTES_AND_CAPACITIES_MAX: Final = 32
_ATTRIBUTE_VALUES_MAX: Final = 48
_CONDITIONS_MAX: Final = 4


def check_device(report: Report, device: Mapping[str, Any], spec: Mapping[str, Any], path: str) -> None:
    """Report what is wrong with a device of the slice ``spec``."""
    name = text(device, "name")
    report.add(*(invalid(f"{path}.name", name, message) for message in validate_dns1123_label(name)))
    attributes, capacity = entries(device, "attributes"), entries(device, "capacity")
    total = len(attributes) + len(capacity)
    if total > _ATTRIBUTES_AND_CAPACITIES_MAX:
        detail = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES_AND_CAPACITIES_MAX}"
        report.add(invalid(path, total, detail))
    values = sum(value_count(attribute or {}) for attribute in attributes.values())
    if report.rules.minor >= 36 and values > _ATTRIBUTE_VALUES_MAX:
        detail = f"the total number of attribute values must not exceed {_ATTRIBUTE_VALUES_MAX}"
        report.add(invalid(path, values, detail))
    check_attributes(report, attributes, f"{path}.attributes")
    shareable = bool(device.get("allowMultipleAllocations"))
    check_capacity(report, capacity, f"{path}.capacity", shareable=shareable)
    taints = items(device, "taints")
    if within(report, taints, report.rules.max_taints, f"{path}.taints"):
        for index, taint in enumerate(taints):
            check_taint(report, taint or {}, f"{path}.taints[{index}]")
    check_consumption(report, items(device, "consumesCounters"), f"{path}.consumesCounters")
    if report.rules.minor < 35:
        check_slice_local_counters(report, spec, device, path)
    _nodes(report, device, path, per_device=bool(spec.get("perDeviceNodeSelection")))
    _binding(report, device, path)
    resources = entries(device, "nodeAllocatableResources")
    check_node_allocatable(report, resources, capacity, f"{path}.nodeAllocatableResources")


def check_taint(report: Report, taint: Mapping[str, Any], path: str) -> None:
    """Report what is wrong with a device taint, in a slice or in a DeviceTaintRule."""
    key, value, effect = text(taint, "key"), text(taint, "value"), text(taint, "effect")
    messages = validate_label_key(key, minor=report.rules.minor)
    report.add(*(invalid(f"{path}.key", key, message) for message in messages))
    report.add(
        *(invalid(f"{path}.value", value, message) for message in validate_label_value(value, minor=report.rules.minor))
    )
    if not effect:
        report.declare(required(f"{path}.effect"))
    elif effect not in report.rules.taint_effects:
        report.declare(not_supported(f"{path}.effect", effect, report.rules.taint_effects))


def _nodes(report: Report, device: Mapping[str, Any], path: str, *, per_device: bool) -> None:
    name, selector, everywhere = (device.get(member) for member in ("nodeName", "nodeSelector", "allNodes"))
    if not per_device:
        if not (name is None and selector is None and everywhere is None):
            detail = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection`"
                " is set to true in the ResourceSlice spec"
            )
            report.add(invalid(path, None, detail))
        return
    given = []
    if name:
        given.append("`nodeName`")
        report.add(*(invalid(f"{path}.nodeName", name, message) for message in validate_node_name(name)))
    elif name is not None:
        report.add(invalid(f"{path}.nodeName", name, "must not be empty"))
    if selector is not None:
        given.append("`nodeSelector`")
        check_node_selector(report, selector, f"{path}.nodeSelector")
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        report.add(invalid(f"{path}.allNodes", everywhere, "must be either unset or set to true"))
    detail = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
        " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    )
    if not given:
        report.add(required(path, detail))
    elif len(given) > 1:
        report.add(invalid(path, "{" + ", ".join(given) + "}", detail))


def _binding(report: Report, device: Mapping[str, Any], path: str) -> None:
    members = ("bindingConditions", "bindingFailureConditions")
    conditions, failures = ([condition or "" for condition in items(device, member)] for member in members)
    for member, found in zip(members, (conditions, failures), strict=True):
        if within(report, found, _CONDITIONS_MAX, f"{path}.{member}", declared=True):
            for index, condition in enumerate(found):
                messages = validate_label_key(condition, minor=report.rules.minor)
                report.add(*(invalid(f"{path}.{member}[{index}]", condition, message) for message in messages))
    for member, found in zip(members, (conditions, failures), strict=True):
        for index, condition in enumerate(found):
            place = f"{path}.{member}[{index}]"
            if condition in found[:index]:
                report.add(duplicate(place, condition))
            if member == "bindingFailureConditions" and condition in conditions:
                detail = "bindingFailureConditions must not overlap with bindingConditions"
                report.add(invalid(place, condition, detail))
    for empty, other in (members, members[::-1]):
        if not items(device, empty) and items(device, other):
            report.add(invalid(f"{path}.{empty}", device.get(empty), f"{empty} are required to use {other}"))
