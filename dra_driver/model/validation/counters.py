"""Rules of partitionable devices: shared counter sets and what devices consume of them.

From 1.35 on a slice has either counter sets or devices, and counter sets belong to the pool. In 1.34 (alpha) both stood
in one slice and devices could only use sets of their own.
Source: resource.k8s.io CounterSet, DeviceCounterConsumption; validateCounterSet, validateDeviceCounterConsumption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_driver.model.field_error import invalid, required
from dra_driver.model.names import LABEL_MAX_BYTES, validate_dns1123_label
from dra_driver.model.quantity import Quantity
from dra_driver.model.validation.report import Report, entries, items, no_duplicates, shortened, text, within

_SETS_MAX: Final = 8
_CONSUMPTIONS_MAX: Final = 2
_COUNTERS_MAX: Final = 32
_GROUPS_MAX: Final = 2
# 1.34 only
_SHARED_COUNTERS_MAX: Final = 32
_DEVICE_COUNTERS_MAX: Final = 32
_SLICE_COUNTERS_MAX: Final = 1024


def check_shared_counters(report: Report, sets: list[Any], path: str) -> None:
    """Report what is wrong with the counter sets of a slice."""
    sets = [entry or {} for entry in sets]
    if report.rules.minor < 35:
        total = sum(len(entries(entry, "counters")) for entry in sets)
        if total > _SHARED_COUNTERS_MAX:
            detail = f"the total number of shared counters must not exceed {_SHARED_COUNTERS_MAX}"
            report.add(invalid(path, total, detail))
    elif not within(report, sets, _SETS_MAX, path, declared=True):
        return
    no_duplicates(
        report, (text(entry, "name") for entry in sets), path, name="name", show=lambda index: _set_json(sets[index])
    )
    for index, entry in enumerate(sets):
        _name(report, text(entry, "name"), f"{path}[{index}].name")
        _counters(report, entry, f"{path}[{index}].counters")


def check_consumption(report: Report, consumptions: list[Any], path: str) -> None:
    """Report what is wrong with ``consumesCounters`` of one device."""
    consumptions = [entry or {} for entry in consumptions]
    if report.rules.minor >= 35 and not within(report, consumptions, _CONSUMPTIONS_MAX, path, declared=True):
        return
    for index, entry in enumerate(consumptions):
        place = f"{path}[{index}]"
        _name(report, text(entry, "counterSet"), f"{place}.counterSet", checked=report.rules.minor >= 35)
        _counters(report, entry, f"{place}.counters")
        _groups(report, items(entry, "compatibilityGroups"), f"{place}.compatibilityGroups")
    no_duplicates(
        report,
        (text(entry, "counterSet") for entry in consumptions),
        path,
        name="counterSet",
        show=lambda index: _consumption_json(consumptions[index]),
    )


def check_slice_local_counters(report: Report, spec: Mapping[str, Any], device: Mapping[str, Any], path: str) -> None:
    """Rules of 1.34 alone: a device's counters are counted and have to exist in the same slice."""
    consumptions = [entry or {} for entry in items(device, "consumesCounters")]
    total = sum(len(entries(entry, "counters")) for entry in consumptions)
    if total > _DEVICE_COUNTERS_MAX:
        report.add(invalid(path, total, f"the total number of counters must not exceed {_DEVICE_COUNTERS_MAX}"))
    known = {
        text(entry or {}, "name"): set(entries(entry or {}, "counters")) for entry in items(spec, "sharedCounters")
    }
    for index, entry in enumerate(consumptions):
        place = f"{path}.consumesCounters[{index}]"
        name = text(entry, "counterSet")
        if name not in known:
            detail = "must reference a counterSet defined in the ResourceSlice sharedCounters"
            report.add(invalid(f"{place}.counterSet", name, detail))
            continue
        for counter in sorted(set(entries(entry, "counters")) - known[name]):
            detail = "must reference a counter defined in the ResourceSlice sharedCounters"
            report.add(invalid(f"{place}.counters", counter, detail))


def check_slice_counter_total(report: Report, devices: list[Any], path: str) -> None:
    """Rule of 1.34 alone: the counters of all devices of a slice are limited."""
    total = sum(
        len(entries(entry or {}, "counters")) for device in devices for entry in items(device or {}, "consumesCounters")
    )
    if total > _SLICE_COUNTERS_MAX:
        detail = f"the total number of counters in devices must not exceed {_SLICE_COUNTERS_MAX}"
        report.add(invalid(path, total, detail))


def _name(report: Report, name: str, path: str, *, checked: bool = True) -> None:
    if not name:
        report.declare(required(path))
    elif checked:
        report.declare(
            *(invalid(path, name, message) for message in validate_dns1123_label(name, unit=report.declared_unit))
        )


def _counters(report: Report, owner: Mapping[str, Any], path: str) -> None:
    counters = entries(owner, "counters")
    minor = report.rules.minor
    if not counters:
        report.declare(required(path))
        return
    short = minor < 35 or within(report, list(counters), _COUNTERS_MAX, path)
    if not short and not report.rules.declarative:
        return
    for key in sorted(counters):
        place = report.rules.key_path(path, shortened(key, LABEL_MAX_BYTES))
        report.declare(
            *(invalid(place, key, message) for message in validate_dns1123_label(key, unit=report.declared_unit))
        )


def _groups(report: Report, groups: list[Any], path: str) -> None:
    if not within(report, groups, _GROUPS_MAX, path, declared=True):
        return
    for index, group in enumerate(groups):
        messages = validate_dns1123_label(group or "", unit="bytes")
        report.declare(*(invalid(f"{path}[{index}]", group or "", message) for message in messages))
    no_duplicates(report, (group or "" for group in groups), path, show=lambda index: groups[index] or "")


def _counters_json(owner: Mapping[str, Any]) -> dict[str, Any]:
    counters = entries(owner, "counters")
    if not counters:
        return {}
    return {"counters": {key: {"value": _quantity_text(counters[key])} for key in sorted(counters)}}


def _quantity_text(counter: Mapping[str, Any] | None) -> str:
    value = (counter or {}).get("value")
    return "0" if value is None else str(Quantity.from_json(value))


def _set_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": text(entry, "name"), **_counters_json(entry)}


def _consumption_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    groups = [group or "" for group in items(entry, "compatibilityGroups")]
    shown = {"counterSet": text(entry, "counterSet"), **_counters_json(entry)}
    return shown | ({"compatibilityGroups": groups} if groups else {})
