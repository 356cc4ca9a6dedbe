"""Rules of a ResourceSlice as a whole.

Source: resource.k8s.io ResourceSliceSpec; validateResourceSliceSpec and the strategy of the registry (1.34 to 1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_driver.model.field_error import FieldError, Named, duplicate, invalid, not_supported, required
from dra_driver.model.names import (
    declared_fully_qualified_name_errors,
    driver_name_errors,
    fully_qualified_name_errors,
    pool_name_errors,
    validate_node_name,
)
from dra_driver.model.validation.attributes import attribute_json
from dra_driver.model.validation.counters import check_shared_counters, check_slice_counter_total
from dra_driver.model.validation.devices import check_device
from dra_driver.model.validation.gates import LIST_MEMBERS, Rules, drop_disabled
from dra_driver.model.validation.metadata import check_metadata
from dra_driver.model.validation.node_selector import check_node_selector, terms_json
from dra_driver.model.validation.report import Report, entries, items, no_duplicates, number, text, within
from dra_driver.model.validation.shape import check_shape
from dra_driver.model.versions import to_v1

_DEVICES_MAX: Final = 128
_NODE_CHOICE: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_SKIPPABLE: Final = ("*", "NodePrepareResources", "NodeUnprepareResources")


def validate_resource_slice(
    raw: Mapping[str, Any],
    *,
    minor: int = 37,
    gates: Mapping[str, bool] | None = None,
    old: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> list[FieldError]:
    """What Kubernetes 1.``minor`` would answer to the creation of this slice, or to the update of ``old`` to it.

    Fields of features that are off are ignored, as the API server drops them (`gates.drop_disabled` tells which).
    For an update only the fields that must not change are compared with ``old``.

    Args:
        raw: decoded JSON of any served version; paths are those of v1.
        gates: feature gates that differ from the release's defaults.

    Raises:
        InputError: something has the wrong type, so that the API server could not even read it (it answers 400).
    """
    rules = Rules(minor, gates or {})
    raw = to_v1(raw)
    check_shape("ResourceSlice", raw, source=source)
    report = Report(rules)
    spec, _ = drop_disabled(entries(raw, "spec"), rules)
    check_metadata(report, entries(raw, "metadata"), namespaced=False)
    _spec(report, spec, None if old is None else entries(to_v1(old), "spec"))
    return report.errors()


def _spec(report: Report, spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    report.add(*driver_name_errors(text(spec, "driver"), "spec.driver", minor=report.rules.minor))
    _pool(report, entries(spec, "pool"))
    if old is not None:
        _immutable(report, spec, old)
    _nodes(report, spec)
    devices = [device or {} for device in items(spec, "devices")]
    counters = items(spec, "sharedCounters")
    separate = report.rules.minor >= 35
    if separate and spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        report.add(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    limit = report.rules.max_devices_with_extras if _has_extras(devices, report.rules) else _DEVICES_MAX
    if within(report, devices, limit, "spec.devices"):
        for index, device in enumerate(devices):
            check_device(report, device, spec, f"spec.devices[{index}]")
        no_duplicates(report, (text(device, "name") for device in devices), "spec.devices", name="name")
    if not separate:
        check_slice_counter_total(report, devices, "spec.devices")
    check_shared_counters(report, counters, "spec.sharedCounters")
    if spec.get("partitionTypeAttribute") is not None:
        _partition_type(report, spec, devices)
    _skipped_operations(report, spec)


def _pool(report: Report, pool: Mapping[str, Any]) -> None:
    report.add(*pool_name_errors(text(pool, "name"), "spec.pool.name"))
    count, generation = number(pool, "resourceSliceCount"), number(pool, "generation")
    if count <= 0:
        report.add(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if generation < 0:
        report.add(invalid("spec.pool.generation", generation, "must be greater than or equal to zero"))


def _immutable(report: Report, spec: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    compared = (
        ("spec.pool.name", text(entries(spec, "pool"), "name"), text(entries(old, "pool"), "name")),
        ("spec.driver", text(spec, "driver"), text(old, "driver")),
    )
    for path, new_value, old_value in compared:
        if new_value != old_value:
            report.add(invalid(path, new_value, "field is immutable"))
    node = spec.get("nodeName")
    if node != old.get("nodeName"):
        report.add(invalid("spec.nodeName", None if node is None else Named(node), "field is immutable"))


def _nodes(report: Report, spec: Mapping[str, Any]) -> None:
    given = []
    name, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if name:
        given.append("`nodeName`")
        report.add(*(invalid("spec.nodeName", name, message) for message in validate_node_name(name)))
    elif name is not None:
        report.add(invalid("spec.nodeName", name, "must be either unset or set to a non-empty string"))
    if selector is not None:
        given.append("`nodeSelector`")
        check_node_selector(report, selector, "spec.nodeSelector")
        if len(items(selector, "nodeSelectorTerms")) != 1:
            path = "spec.nodeSelector.nodeSelectorTerms"
            report.add(invalid(path, terms_json(selector), "must have exactly one node selector term"))
    for member in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(member):
            given.append(f"`{member}`")
        elif spec.get(member) is not None:
            report.add(invalid(f"spec.{member}", False, "must be either unset or set to true"))
    if not given:
        report.add(required("spec", _NODE_CHOICE))
    elif len(given) > 1:
        shown = "{" + ", ".join(given) + "}"
        report.add(invalid("spec", shown, f"{_NODE_CHOICE}, but multiple fields are set"))


def _has_extras(devices: list[Mapping[str, Any]], rules: Rules) -> bool:
    for device in devices:
        if device.get("taints") or device.get("consumesCounters"):
            return True
        if rules.minor >= 36:
            for attribute in entries(device, "attributes").values():
                if any((attribute or {}).get(member) is not None for member in LIST_MEMBERS):
                    return True
    return False


def _partition_type(report: Report, spec: Mapping[str, Any], devices: list[Mapping[str, Any]]) -> None:
    name = spec["partitionTypeAttribute"]
    report.declare(*declared_fully_qualified_name_errors(name, "spec.partitionTypeAttribute"))
    if not any(items(device, "consumesCounters") for device in devices):
        detail = "may only be set on a slice which declares devices that consume counters"
        report.add(invalid("spec.partitionTypeAttribute", name, detail))
        return
    if fully_qualified_name_errors(name, ""):
        return
    bare = name.removeprefix(f"{text(spec, 'driver')}/")
    for index, device in enumerate(devices):
        if not items(device, "consumesCounters"):
            continue
        path = f"spec.devices[{index}].attributes[{name}]"
        attributes = entries(device, "attributes")
        if name not in attributes and bare not in attributes:
            detail = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            report.add(required(path, detail))
            continue
        attribute = (attributes[name] if name in attributes else attributes[bare]) or {}
        if attribute.get("string") is None:
            detail = "must be a string value because `partitionTypeAttribute` names this attribute"
            report.add(invalid(path, attribute_json(attribute), detail))


def _skipped_operations(report: Report, spec: Mapping[str, Any]) -> None:
    path = "spec.skipNodeOperations"
    skipped = [operation or "" for operation in items(spec, "skipNodeOperations")]
    if "NodePrepareResources" in skipped and not {"NodeUnprepareResources", "*"} & set(skipped):
        detail = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        report.add(invalid(path, skipped, detail))
    for index, operation in enumerate(skipped):
        if operation in skipped[:index]:
            report.declare(duplicate(f"{path}[{index}]", Named(operation)))
    for index, operation in enumerate(skipped):
        if operation not in _SKIPPABLE:
            report.declare(not_supported(f"{path}[{index}]", operation, _SKIPPABLE))
