"""Rules of a device's attributes: keys, the one-of of value members, lengths.

Source: resource.k8s.io DeviceAttribute; validateDeviceAttribute and Validate_DeviceAttribute (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_driver.model.field_error import byte_length, invalid, required, too_long
from dra_driver.model.names import DRIVER_NAME_MAX_BYTES, IDENTIFIER_MAX_BYTES, qualified_name_errors
from dra_driver.model.semver import MAX_VERSION_BYTES, matches_pattern
from dra_driver.model.validation.gates import LIST_MEMBERS
from dra_driver.model.validation.report import Report, by_key, shortened

KEY_MAX_BYTES: Final = DRIVER_NAME_MAX_BYTES + 1 + IDENTIFIER_MAX_BYTES
VALUE_MAX_BYTES: Final = 64
_MEMBERS: Final = ("int", "bool", "string", "version", *LIST_MEMBERS)
# Field names of Go's internal type, in its order.
_GO_NAMES: Final = {
    "int": "IntValue",
    "bool": "BoolValue",
    "string": "StringValue",
    "version": "VersionValue",
    "ints": "IntValues",
    "bools": "BoolValues",
    "strings": "StringValues",
    "versions": "VersionValues",
}


def check_attributes(report: Report, attributes: Mapping[str, Any], path: str) -> None:
    """Report what is wrong with the attributes of one device; their number is judged elsewhere."""
    for key, attribute in by_key(attributes):
        place = f"{path}[{shortened(key, KEY_MAX_BYTES)}]"
        minor = report.rules.minor
        report.add(*qualified_name_errors(key, path if minor >= 36 else place, minor=minor))
        _attribute(report, attribute, place, f"{path}[{key}]")


def attribute_json(attribute: Mapping[str, Any], minor: int = 37) -> dict[str, Any]:
    """An attribute as Go prints its internal type in a message."""
    members = _MEMBERS if minor >= 36 else _MEMBERS[:4]
    return {_GO_NAMES[member]: attribute.get(member) for member in members}


def value_count(attribute: Mapping[str, Any]) -> int:
    """How many values an attribute counts for: list items one by one, everything else as one."""
    return sum(len(attribute.get(member) or ()) for member in LIST_MEMBERS) or 1


def _attribute(report: Report, attribute: Mapping[str, Any], path: str, declared_path: str) -> None:
    present = [member for member in _MEMBERS if attribute.get(member) is not None]
    if "string" in present:
        _string(report, attribute["string"], f"{path}.string")
    if "version" in present:
        _version(report, attribute["version"], f"{path}.version")
    for member in ("bools", "ints", "strings", "versions"):
        if member not in present:
            continue
        values = attribute[member]
        if not values:
            report.add(invalid(f"{path}.{member}", [], "must not be empty if specified"))
        for index, value in enumerate(values):
            if member == "strings":
                _string(report, value or "", f"{path}.strings[{index}]")
            elif member == "versions":
                _version(report, value or "", f"{path}.versions[{index}]")
    _one_of(report, attribute, present, path, declared_path)


def _one_of(report: Report, attribute: Mapping[str, Any], present: list[str], path: str, declared_path: str) -> None:
    minor = report.rules.minor
    detail = "exactly one value must be specified"
    if report.rules.declarative:
        # The declared rule takes empty lists for absent and replaces the written one where both find something.
        filled = [member for member in present if attribute[member] not in ([],)]
        names = ", ".join(f"`{member}`" for member in _MEMBERS)
        if len(filled) != 1:
            shown = "{" + ", ".join(filled) + "}" if filled else ""
            one = "must specify exactly one of" if filled else "must specify one of"
            report.declare(invalid(declared_path, shown, f"{one}: {names}"))
        if len(present) == 1 or (len(filled) != 1 and path == declared_path):
            return
        report.add(invalid(path, attribute_json(attribute) if present else "", detail))
    elif not present:
        report.add(required(path, detail) if minor < 35 else invalid(path, "", detail))
    elif len(present) > 1:
        report.add(invalid(path, attribute_json(attribute, minor), detail))


def _string(report: Report, value: str, path: str) -> None:
    if byte_length(value) > VALUE_MAX_BYTES:
        report.add(too_long(path, VALUE_MAX_BYTES))


def _version(report: Report, value: str, path: str) -> None:
    if not matches_pattern(value):
        report.add(invalid(path, value, "must be a string compatible with semver.org spec 2.0.0"))
    if byte_length(value) > MAX_VERSION_BYTES:
        report.add(too_long(path, MAX_VERSION_BYTES))
