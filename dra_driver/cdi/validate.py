"""Whether a spec is valid: every rule of the CDI specification 1.1.0, found faults named by their path in the file.

Stricter than the reference library (container-device-interface 1.1.2), which loads relative paths, forgets annotation
keys, lengths of vendor and class, repeated variables and hook timeouts; nothing that it refuses passes here. ``null``
is the same as "not given" for a field, as there; in a list it is refused (the library panics).

The version that a file declares must be known and must allow everything that the file uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_driver.cdi.spec import KNOWN_VERSIONS, Spec, from_json, minimum_version
from dra_driver.errors import InputError

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.IGNORECASE)
_VENDOR_OR_CLASS: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_HOOK_NAMES: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_NODE_TYPES: Final = ("", "b", "c", "u", "p")
_ANNOTATIONS_BYTES: Final = 256 * 1024
_OPPOSITES: Final = (("ro", "rw"), ("dev", "nodev"), ("suid", "nosuid"), ("exec", "noexec"))


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. ``path`` is as in ``containerEdits.mounts[3].hostPath``; empty for the file as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def parse(data: bytes | str, source: str) -> Spec:
    """The spec in a JSON file.

    Raises:
        InputError: not JSON, or not a valid spec; names ``source`` and every fault.
    """
    try:
        raw = json.loads(data, object_pairs_hook=_without_repetition)
    except ValueError as error:
        raise InputError(f"not a CDI spec in JSON: {error}", source=source) from error
    problems = validate(raw)
    if problems:
        raise InputError("; ".join(map(str, problems)), source=source, hint="see the CDI specification, SPEC.md")
    return from_json(raw)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"field {key!r} is given twice")
        found[key] = value
    return found


def validate(raw: object) -> list[Problem]:
    """Every fault of a decoded spec file, in the order of the fields; empty when it is valid."""
    check = _Check()
    check.spec(raw)
    if not check.problems:
        check.declared_version(raw)
    return check.problems


class _Check:
    """Walks a document and collects what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    # ---- shapes

    def fields(self, raw: object, path: str, known: Mapping[str, Callable[[Any, str], None]], *required: str) -> None:
        """``raw`` is an object with known fields only; each given one is checked by its function."""
        if not isinstance(raw, Mapping):
            self.report(path, f"must be an object, is {_kind(raw)}")
            return
        base = f"{path}." if path else ""
        for name, value in raw.items():
            if name not in known:
                self.report(f"{base}{name}", "unknown field")
            elif value is not None:
                known[name](value, f"{base}{name}")
        for name in required:
            if raw.get(name) is None:
                self.report(f"{base}{name}", "is required")

    def items(self, raw: object, path: str) -> Iterator[tuple[Any, str]]:
        """The elements of a list with their paths."""
        if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
            self.report(path, f"must be a list, is {_kind(raw)}")
            return
        for index, item in enumerate(raw):
            yield item, f"{path}[{index}]"

    def text(self, raw: object, path: str) -> bool:
        if isinstance(raw, str):
            return True
        self.report(path, f"must be a text, is {_kind(raw)}")
        return False

    def any_text(self, raw: object, path: str) -> None:
        self.text(raw, path)

    def filled_text(self, raw: object, path: str) -> None:
        if self.text(raw, path) and not raw:
            self.report(path, "must not be empty")

    def texts(self, raw: object, path: str) -> None:
        for item, place in self.items(raw, path):
            self.text(item, place)

    def boolean(self, raw: object, path: str) -> None:
        if not isinstance(raw, bool):
            self.report(path, f"must be true or false, is {_kind(raw)}")

    def integer(self, low: int, high: int) -> Callable[[object, str], None]:
        def check(raw: object, path: str) -> None:
            if not isinstance(raw, int) or isinstance(raw, bool):
                self.report(path, f"must be a whole number, is {_kind(raw)}")
            elif not low <= raw <= high:
                self.report(path, f"must be between {low} and {high}, is {raw}")

        return check

    def absolute(self, raw: object, path: str) -> None:
        if not self.text(raw, path):
            return
        if not isinstance(raw, str) or not raw:
            self.report(path, "must not be empty")
        elif not raw.startswith("/"):
            self.report(path, f"must be an absolute path, is {raw!r}")
        elif "\0" in raw:
            self.report(path, "must not hold a NUL character")

    def absolute_or_empty(self, raw: object, path: str) -> None:
        if raw != "":
            self.absolute(raw, path)

    # ---- the document

    def spec(self, raw: object) -> None:
        self.fields(
            raw,
            "",
            {
                "cdiVersion": self.version,
                "kind": self.kind,
                "annotations": self.annotations,
                "devices": self.devices,
                "containerEdits": self.edits,
            },
            "cdiVersion",
            "kind",
            "devices",
        )

    def version(self, raw: object, path: str) -> None:
        if self.text(raw, path) and str(raw).removeprefix("v") not in KNOWN_VERSIONS:
            self.report(path, f"unknown version {raw!r}; known are {', '.join(KNOWN_VERSIONS)}")

    def declared_version(self, raw: Any) -> None:
        declared, needed = raw["cdiVersion"].removeprefix("v"), minimum_version(from_json(raw))
        if KNOWN_VERSIONS.index(declared) < KNOWN_VERSIONS.index(needed):
            self.report("cdiVersion", f"is {declared}, but the file uses what needs at least {needed}")

    def kind(self, raw: object, path: str) -> None:
        if not self.text(raw, path):
            return
        vendor, slash, cls = str(raw).partition("/")
        if not slash:
            self.report(path, f"must be vendor/class, is {raw!r}")
            return
        for what, name, longest in (("vendor", vendor, 253), ("class", cls, 63)):
            if not _VENDOR_OR_CLASS.fullmatch(name):
                self.report(
                    path,
                    f"{what} {name!r} must begin with a letter, end with a letter or digit, and hold only letters, "
                    "digits, '-', '_' and '.'",
                )
            elif len(name) > longest:
                self.report(path, f"{what} may have {longest} characters, has {len(name)}")
        if _VENDOR_OR_CLASS.fullmatch(vendor) and not _is_subdomain(vendor):
            self.report(path, f"vendor {vendor!r} must be a DNS subdomain")

    def annotations(self, raw: object, path: str) -> None:
        if not isinstance(raw, Mapping):
            self.report(path, f"must be an object, is {_kind(raw)}")
            return
        size = 0
        for key, value in raw.items():
            place = f"{path}[{key}]"
            if self.text(value, place):
                size += len(str(key).encode()) + len(str(value).encode())
            prefix, slash, name = str(key).rpartition("/")
            if slash and (len(prefix) > 253 or not _is_subdomain(prefix)):
                self.report(place, f"prefix {prefix!r} must be a DNS subdomain")
            if not _ANNOTATION_NAME.fullmatch(name) or len(name) > 63:
                self.report(
                    place,
                    f"name {name!r} must have 1 to 63 letters, digits, '-', '_' or '.', a letter or digit at both ends",
                )
        if size > _ANNOTATIONS_BYTES:
            self.report(path, f"may have {_ANNOTATIONS_BYTES} bytes in all, has {size}")

    def devices(self, raw: object, path: str) -> None:
        seen: set[str] = set()
        empty = True
        for device, place in self.items(raw, path):
            empty = False
            self.fields(
                device,
                place,
                {"name": self.device_name, "annotations": self.annotations, "containerEdits": self.device_edits},
                "name",
                "containerEdits",
            )
            name = device.get("name") if isinstance(device, Mapping) else None
            if isinstance(name, str) and name in seen:
                self.report(f"{place}.name", f"device {name!r} is there twice")
            elif isinstance(name, str):
                seen.add(name)
        if empty and isinstance(raw, Sequence) and not isinstance(raw, str):
            self.report(path, "must have at least one device")

    def device_name(self, raw: object, path: str) -> None:
        if self.text(raw, path) and not _DEVICE.fullmatch(str(raw)):
            self.report(
                path,
                f"device name {raw!r} must hold only letters, digits, '-', '_', '.' and ':', a letter or digit at both "
                "ends",
            )

    def device_edits(self, raw: object, path: str) -> None:
        self.edits(raw, path)
        # An empty intelRdt object is a change to the reference library, too.
        if isinstance(raw, Mapping) and all(raw[name] in (None, []) for name in raw):
            self.report(path, "must change something")

    def edits(self, raw: object, path: str) -> None:
        self.fields(
            raw,
            path,
            {
                "env": self.environment,
                "deviceNodes": self.device_nodes,
                "netDevices": self.net_devices,
                "hooks": self.hooks,
                "mounts": self.mounts,
                "intelRdt": self.intel_rdt,
                "additionalGids": self.gids,
            },
        )

    def environment(self, raw: object, path: str) -> None:
        seen: set[str] = set()
        for item, place in self.items(raw, path):
            if not self.text(item, place):
                continue
            name, equals, _ = item.partition("=")
            if not equals or not name or "\0" in item:
                self.report(place, f"must be NAME=value, is {item!r}")
            elif name in seen:
                self.report(place, f"variable {name} is set twice")
            seen.add(name)

    def device_nodes(self, raw: object, path: str) -> None:
        uint32 = self.integer(0, 2**32 - 1)
        for node, place in self.items(raw, path):
            self.fields(
                node,
                place,
                {
                    "path": self.absolute,
                    "hostPath": self.absolute_or_empty,
                    "type": self.node_type,
                    "major": self.integer(-(2**63), 2**63 - 1),
                    "minor": self.integer(-(2**63), 2**63 - 1),
                    "fileMode": uint32,
                    "permissions": self.permissions,
                    "uid": uint32,
                    "gid": uint32,
                },
                "path",
            )

    def node_type(self, raw: object, path: str) -> None:
        if self.text(raw, path) and raw not in _NODE_TYPES:
            self.report(path, f"must be one of b, c, u, p or empty, is {raw!r}")

    def permissions(self, raw: object, path: str) -> None:
        if self.text(raw, path) and raw != "none" and set(str(raw)) - set("rwm"):
            self.report(path, f"must be made of r, w and m, or be 'none', is {raw!r}")

    def net_devices(self, raw: object, path: str) -> None:
        seen: dict[str, set[str]] = {"hostInterfaceName": set(), "name": set()}
        for device, place in self.items(raw, path):
            self.fields(
                device,
                place,
                {"hostInterfaceName": self.filled_text, "name": self.filled_text},
                "hostInterfaceName",
                "name",
            )
            for field, names in seen.items():
                name = device.get(field) if isinstance(device, Mapping) else None
                if isinstance(name, str) and name in names:
                    self.report(f"{place}.{field}", f"interface {name!r} is there twice")
                elif isinstance(name, str):
                    names.add(name)

    def hooks(self, raw: object, path: str) -> None:
        for hook, place in self.items(raw, path):
            self.fields(
                hook,
                place,
                {
                    "hookName": self.hook_name,
                    "path": self.absolute,
                    "args": self.texts,
                    "env": self.environment,
                    "timeout": self.integer(1, 2**31 - 1),
                },
                "hookName",
                "path",
            )

    def hook_name(self, raw: object, path: str) -> None:
        if self.text(raw, path) and raw not in _HOOK_NAMES:
            self.report(path, f"must be one of {', '.join(_HOOK_NAMES)}, is {raw!r}")

    def mounts(self, raw: object, path: str) -> None:
        for mount, place in self.items(raw, path):
            self.fields(
                mount,
                place,
                {
                    "hostPath": self.mount_source(mount),
                    "containerPath": self.absolute,
                    "options": self.mount_options,
                    "type": self.any_text,
                },
                "hostPath",
                "containerPath",
            )

    def mount_source(self, mount: object) -> Callable[[object, str], None]:
        """A path for bind mounts; other file systems have sources such as ``tmpfs`` or ``proc``."""
        kind = mount.get("type") if isinstance(mount, Mapping) else None
        return self.absolute if kind in (None, "", "bind") else self.filled_text

    def mount_options(self, raw: object, path: str) -> None:
        given: set[str] = set()
        for option, place in self.items(raw, path):
            if not self.text(option, place):
                continue
            given.add(option)
            if not option or "," in option or any(letter.isspace() for letter in option):
                self.report(place, f"must be one mount option, is {option!r}")
        for one, other in _OPPOSITES:
            if one in given and other in given:
                self.report(path, f"{one} and {other} exclude each other")

    def intel_rdt(self, raw: object, path: str) -> None:
        self.fields(
            raw,
            path,
            {
                "closID": self.clos_id,
                "l3CacheSchema": self.any_text,
                "memBwSchema": self.any_text,
                "schemata": self.texts,
                "enableMonitoring": self.boolean,
            },
        )

    def clos_id(self, raw: object, path: str) -> None:
        if not self.text(raw, path) or raw in ("", "/"):
            return
        name = str(raw)
        if len(name) >= 4096 or name in (".", "..") or "/" in name or "\n" in name:
            self.report(path, f"must be '/' or a file name, is {name!r}")

    def gids(self, raw: object, path: str) -> None:
        check = self.integer(0, 2**32 - 1)
        for item, place in self.items(raw, path):
            check(item, place)


def _is_subdomain(name: str) -> bool:
    return all(len(label) <= 63 and _LABEL.fullmatch(label) for label in name.split("."))


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}"
    return "an object" if isinstance(value, Mapping) else "a list"
