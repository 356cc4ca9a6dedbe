"""Rules of ``metadata`` that hold for objects of every kind when they are created.

Source: k8s.io/apimachinery/pkg/api/validation/objectmeta.go, pkg/apis/core/validation ValidateObjectMeta (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_driver.model.field_error import byte_length, invalid, required, too_long
from dra_driver.model.names import (
    validate_dns1123_label,
    validate_dns1123_subdomain,
    validate_label_key,
    validate_label_value,
)
from dra_driver.model.validation.report import Report, entries, items, text

_ANNOTATIONS_MAX_BYTES: Final = 256 * 1024
_GENERATED_BASE_MAX: Final = 58
_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def check_metadata(report: Report, metadata: Mapping[str, Any], *, namespaced: bool, path: str = "metadata") -> None:
    """Report what is wrong with the metadata of an object whose name has to be a DNS subdomain.

    A name that the API server would generate is checked with five letters in place of its random ones.
    """
    prefix, name = text(metadata, "generateName"), text(metadata, "name")
    if prefix:
        for message in validate_dns1123_subdomain(_with_trailing_dash_masked(prefix)):
            report.add(invalid(f"{path}.generateName", prefix, message))
        name = (
            name or prefix.encode("utf-8", "surrogatepass")[:_GENERATED_BASE_MAX].decode("utf-8", "replace") + "xxxxx"
        )
    if not name:
        report.add(required(f"{path}.name", "name or generateName is required"))
    else:
        report.add(*(invalid(f"{path}.name", name, message) for message in validate_dns1123_subdomain(name)))
    _namespace(report, text(metadata, "namespace"), namespaced, f"{path}.namespace")
    _labels(report, entries(metadata, "labels"), f"{path}.labels")
    _annotations(report, entries(metadata, "annotations"), f"{path}.annotations")
    _owners(report, [owner or {} for owner in items(metadata, "ownerReferences")], f"{path}.ownerReferences")
    _finalizers(report, [finalizer or "" for finalizer in items(metadata, "finalizers")], f"{path}.finalizers")


def _with_trailing_dash_masked(prefix: str) -> str:
    # Upstream replaces the last two characters, not one, by an "a"; kept, since it decides about "A-".
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _namespace(report: Report, namespace: str, namespaced: bool, path: str) -> None:
    if not namespaced:
        return  # the API server takes it away before it looks
    if not namespace:
        report.add(required(path))
    else:
        report.add(*(invalid(path, namespace, message) for message in validate_dns1123_label(namespace)))


def _labels(report: Report, labels: Mapping[str, Any], path: str) -> None:
    for key in sorted(labels):
        value = labels[key] or ""
        report.add(*(invalid(path, key, message) for message in validate_label_key(key, minor=report.rules.minor)))
        report.add(
            *(invalid(path, value, message) for message in validate_label_value(value, minor=report.rules.minor))
        )


def _annotations(report: Report, annotations: Mapping[str, Any], path: str) -> None:
    for key in sorted(annotations):
        messages = validate_label_key(key.lower(), minor=report.rules.minor)
        report.add(*(invalid(path, key, message) for message in messages))
    if sum(byte_length(key) + byte_length(value or "") for key, value in annotations.items()) > _ANNOTATIONS_MAX_BYTES:
        report.add(too_long(path, _ANNOTATIONS_MAX_BYTES))


def _owners(report: Report, given: list[Mapping[str, Any]], path: str) -> None:
    owners: list[Mapping[str, Any]] = []
    for owner in given:
        if all(_owner_json(owner) != _owner_json(other) for other in owners):
            owners.append(owner)  # the API server drops repeated ones before it looks
    controller = ""
    for index, owner in enumerate(owners):
        place = f"{path}[{index}]"
        version = text(owner, "apiVersion")
        group_version = version.split("/")
        if not version:
            report.add(required(f"{place}.apiVersion", "must not be empty"))
        elif version == "/" or len(group_version) > 2 or not group_version[-1]:
            report.add(invalid(f"{place}.apiVersion", version, "must be <group>/<version> or <version>"))
        for member in ("kind", "name", "uid"):
            if not text(owner, member):
                report.add(required(f"{place}.{member}", "must not be empty"))
        if version in {"v1", "/v1"} and owner.get("kind") == "Event":
            report.add(invalid(place, _owner_json(owner), "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            current = f"{text(owner, 'kind')}/{text(owner, 'name')}"
            if controller:
                report.add(
                    invalid(
                        path,
                        [_owner_json(each) for each in owners],
                        "Only one reference can have Controller set to true."
                        f' Found "true" in references for {controller} and {current}',
                    )
                )
            else:
                controller = current


def _owner_json(owner: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {member: text(owner, member) for member in ("apiVersion", "kind", "name", "uid")}
    optional = ("controller", "blockOwnerDeletion")
    return shown | {member: owner[member] for member in optional if owner.get(member) is not None}


def _finalizers(report: Report, finalizers: list[str], path: str) -> None:
    for name in finalizers:
        report.add(*(invalid(path, name, message) for message in validate_label_key(name, minor=report.rules.minor)))
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        report.add(invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    for index, name in enumerate(finalizers):
        if "/" not in name and name not in _FINALIZERS:
            report.add(
                invalid(f"{path}[{index}]", name, "name is neither a standard finalizer name nor is it fully qualified")
            )
