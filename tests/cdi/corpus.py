"""Good and bad spec files: what is wrong with each, and where the reference library says otherwise, and why.

One list serves the tests of our own validation and the comparison with the Go library.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """One document.

    Attributes:
        name: test id.
        content: the file.
        problems: paths that our validation complains about; empty for a valid file.
        accepted_by_reference: None: the same verdict as ours; otherwise why the library loads what we refuse.
    """

    name: str
    content: str
    problems: tuple[str, ...] = ()
    accepted_by_reference: str | None = None

    @property
    def valid(self) -> bool:
        return not self.problems


def document(**edits: Any) -> dict[str, Any]:
    """A small valid spec whose only device has ``edits``."""
    return {
        "cdiVersion": "1.1.0",
        "kind": "example.com/gpu",
        "devices": [{"name": "a", "containerEdits": edits or {"env": ["A=b"]}}],
    }


def case(name: str, raw: object, *problems: str, reference: str | None = None) -> Case:
    return Case(name, json.dumps(raw), problems, reference)


def changed(
    name: str, change: Callable[[dict[str, Any]], object], *problems: str, reference: str | None = None
) -> Case:
    """The small valid spec after ``change``."""
    raw = document()
    change(raw)
    return case(name, raw, *problems, reference=reference)


def renamed(name: str, *, good: bool) -> Case:
    """The small valid spec with another device name."""
    raw = document()
    raw["devices"][0]["name"] = name
    return case(f"device name {name!r}", raw, *([] if good else ["devices[0].name"]))


def edits(name: str, raw: dict[str, Any], *problems: str, reference: str | None = None) -> Case:
    """``raw`` as the device's edits; problem paths are relative to them."""
    base = "devices[0].containerEdits"
    return case(
        name, document(**raw), *(f"{base}.{problem}" if problem else base for problem in problems), reference=reference
    )


def node(name: str, fields: dict[str, Any], *problems: str, reference: str | None = None) -> Case:
    paths = (f"deviceNodes[0].{problem}" for problem in problems)
    return edits(name, {"deviceNodes": [{"path": "/dev/a"} | fields]}, *paths, reference=reference)


def hook(name: str, fields: dict[str, Any], *problems: str, reference: str | None = None) -> Case:
    paths = (f"hooks[0].{problem}" for problem in problems)
    return edits(name, {"hooks": [{"hookName": "prestart", "path": "/h"} | fields]}, *paths, reference=reference)


def mount(name: str, fields: dict[str, Any], *problems: str, reference: str | None = None) -> Case:
    paths = (f"mounts[0].{problem}" for problem in problems)
    return edits(name, {"mounts": [{"hostPath": "/a", "containerPath": "/b"} | fields]}, *paths, reference=reference)


RELATIVE = "the library does not look whether paths are absolute"
LENGTHS = "the library enforces characters of vendor and class, not the lengths and DNS form of SPEC.md"
ANNOTATIONS = "the library hands annotations to a check that ignores their type"
YAML = "the library decodes JSON as YAML, which takes a number for a text and cuts fractions"
SANITY = "the library leaves this to the runtime"

CASES: tuple[Case, ...] = (
    case("smallest", document()),
    # versions
    changed("version with a v", lambda d: d.update(cdiVersion="v1.1.0")),
    changed("version is newer than needed", lambda d: d.update(cdiVersion="1.0.0")),
    changed("version is unknown", lambda d: d.update(cdiVersion="1.2.0"), "cdiVersion"),
    changed("version is missing", lambda d: d.pop("cdiVersion"), "cdiVersion"),
    changed("version is a number", lambda d: d.update(cdiVersion=1), "cdiVersion"),
    *(
        case(
            f"{version} {'allows' if allowed else 'does not allow'} {what}",
            raw | {"cdiVersion": version},
            *([] if allowed else ["cdiVersion"]),
        )
        for what, raw, too_old, enough in (
            (
                "mount types",
                document(mounts=[{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]),
                "0.3.0",
                "0.4.0",
            ),
            ("host paths", document(deviceNodes=[{"path": "/dev/a", "hostPath": "/dev/b"}]), "0.4.0", "0.5.0"),
            ("digits", document() | {"devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}]}, "0.4.0", "0.5.0"),
            ("dotted classes", document() | {"kind": "example.com/gpu.x"}, "0.5.0", "0.6.0"),
            ("annotations", document() | {"annotations": {"a": "b"}}, "0.5.0", "0.6.0"),
            ("groups", document(additionalGids=[5]), "0.6.0", "0.7.0"),
            ("RDT", document(intelRdt={"closID": "gold"}), "0.6.0", "0.7.0"),
            ("RDT schemata", document(intelRdt={"schemata": ["L3:0=f"]}), "1.0.0", "1.1.0"),
            ("RDT monitoring", document(intelRdt={"enableMonitoring": True}), "1.0.0", "1.1.0"),
            ("interfaces", document(netDevices=[{"hostInterfaceName": "a", "name": "b"}]), "1.0.0", "1.1.0"),
        )
        for version, allowed in ((too_old, False), (enough, True))
    ),
    # kind
    changed("kind is missing", lambda d: d.pop("kind"), "kind"),
    changed("kind has no class", lambda d: d.update(kind="example.com"), "kind"),
    changed("vendor begins with a digit", lambda d: d.update(kind="9a.com/gpu"), "kind"),
    changed("vendor ends with a dot", lambda d: d.update(kind="a.com./gpu"), "kind"),
    changed("class is empty", lambda d: d.update(kind="a.com/"), "kind"),
    changed("class has a slash", lambda d: d.update(kind="a.com/b/c"), "kind"),
    changed("class has an underscore", lambda d: d.update(kind="a.com/b_c")),
    changed("vendor has an underscore", lambda d: d.update(kind="a_b.com/c"), "kind", reference=LENGTHS),
    changed("vendor has an empty label", lambda d: d.update(kind="a..com/c"), "kind", reference=LENGTHS),
    changed(
        "vendor of 254 characters",
        lambda d: d.update(kind=".".join(["a" * 61] * 4) + "." + "a" * 6 + "/c"),
        "kind",
        reference=LENGTHS,
    ),
    changed("class of 63 characters", lambda d: d.update(kind="a.com/" + "c" * 63)),
    changed("class of 64 characters", lambda d: d.update(kind="a.com/" + "c" * 64), "kind", reference=LENGTHS),
    # devices
    changed("no devices", lambda d: d.update(devices=[]), "devices"),
    changed("devices are null", lambda d: d.update(devices=None), "devices"),
    changed("devices are missing", lambda d: d.pop("devices"), "devices"),
    changed("device twice", lambda d: d["devices"].append(d["devices"][0]), "devices[1].name"),
    changed("device without a name", lambda d: d["devices"][0].pop("name"), "devices[0].name"),
    changed("device without edits", lambda d: d["devices"][0].pop("containerEdits"), "devices[0].containerEdits"),
    changed(
        "device with empty edits", lambda d: d["devices"][0].update(containerEdits={}), "devices[0].containerEdits"
    ),
    edits("device with an empty list", {"env": []}, ""),
    edits("device with empty RDT settings", {"intelRdt": {}}),
    *(
        renamed(name, good=good)
        for name, good in (
            ("gpu-0", True),
            ("0:1", True),
            ("7c6ff4b4-gpu-0-mig-1g.5gb-0", True),
            ("a_b", True),
            ("1g.5gb+me", False),
            ("a/b", False),
            ("a=b", False),
            ("-a", False),
            ("a-", False),
            ("", False),
            ("ä", False),
        )
    ),
    # unknown fields
    changed("unknown field of the spec", lambda d: d.update(extra=1), "extra"),
    changed("unknown field of a device", lambda d: d["devices"][0].update(extra=1), "devices[0].extra"),
    edits("unknown field of the edits", {"env": ["A=b"], "extra": 1}, "extra"),
    node("unknown field of a node", {"extra": 1}, "extra"),
    hook("unknown field of a hook", {"extra": 1}, "extra"),
    mount("unknown field of a mount", {"extra": 1}, "extra"),
    edits("field of an older version", {"intelRdt": {"enableCMT": True}}, "intelRdt.enableCMT"),
    edits("field in another case", {"env": ["A=b"], "AdditionalGIDs": [1]}, "AdditionalGIDs"),
    Case(
        "field twice",
        '{"cdiVersion":"1.1.0","cdiVersion":"1.1.0","kind":"a.com/b","devices":[{"name":"a","containerEdits":{"env":["A=b"]}}]}',
        ("",),
    ),
    # shapes
    Case("no JSON", '{"cdiVersion":', ("",)),
    Case("a list", "[]", ("",)),
    Case("a text", '"x"', ("",)),
    changed("devices are an object", lambda d: d.update(devices={"a": 1}), "devices"),
    changed("devices are a text", lambda d: d.update(devices="abc"), "devices"),
    changed("edits are a list", lambda d: d.update(containerEdits=[1]), "containerEdits"),
    changed("edits are null", lambda d: d.update(containerEdits=None)),
    # environment
    edits("value is empty", {"env": ["A="]}),
    edits("value holds =", {"env": ["A=b=c"]}),
    edits("variable without =", {"env": ["A"]}, "env[0]"),
    edits("variable without name", {"env": ["=b"]}, "env[0]"),
    edits("variable is a number", {"env": [1]}, "env[0]"),
    edits("variable twice", {"env": ["A=b", "A=c"]}, "env[1]", reference=SANITY),
    # nodes
    node(
        "complete node",
        {
            "hostPath": "/dev/b",
            "type": "c",
            "major": 195,
            "minor": 3,
            "fileMode": 438,
            "permissions": "rwm",
            "uid": 0,
            "gid": 44,
        },
    ),
    node("empty host path", {"hostPath": ""}),
    node("path is empty", {"path": ""}, "path"),
    edits("path is missing", {"deviceNodes": [{"type": "c"}]}, "deviceNodes[0].path"),
    node("relative path", {"path": "dev/a"}, "path", reference=RELATIVE),
    node("relative host path", {"hostPath": "dev/a"}, "hostPath", reference=RELATIVE),
    *(node(f"type {kind}", {"type": kind}) for kind in ("b", "c", "u", "p", "")),
    node("type x", {"type": "x"}, "type"),
    *(node(f"permissions {letters!r}", {"permissions": letters}) for letters in ("r", "rw", "rwm", "mwr", "none", "")),
    node("permissions rwx", {"permissions": "rwx"}, "permissions"),
    node("mode as text", {"fileMode": "0666"}, "fileMode"),
    node("mode too large", {"fileMode": 2**32}, "fileMode"),
    node("negative group", {"gid": -1}, "gid"),
    node("major with a fraction", {"major": 1.5}, "major", reference=YAML),
    node("path is a number", {"path": 5}, "path", reference=YAML),
    edits("node is null", {"deviceNodes": [None]}, "deviceNodes[0]"),
    edits("mount is null", {"mounts": [None]}, "mounts[0]"),
    # interfaces
    edits("interface", {"netDevices": [{"hostInterfaceName": "eth0", "name": "net1"}]}),
    edits("interface without name", {"netDevices": [{"hostInterfaceName": "eth0"}]}, "netDevices[0].name"),
    edits(
        "interface with empty name",
        {"netDevices": [{"hostInterfaceName": "", "name": "a"}]},
        "netDevices[0].hostInterfaceName",
    ),
    edits(
        "interface twice",
        {"netDevices": [{"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "a", "name": "c"}]},
        "netDevices[1].hostInterfaceName",
    ),
    edits(
        "interface name twice",
        {"netDevices": [{"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "c", "name": "b"}]},
        "netDevices[1].name",
    ),
    # hooks
    *(
        hook(f"hook {name}", {"hookName": name})
        for name in ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
    ),
    hook("hook of an unknown stage", {"hookName": "createcontainer"}, "hookName"),
    hook("hook without path", {"path": ""}, "path"),
    hook("hook with relative path", {"path": "bin/h"}, "path", reference=RELATIVE),
    hook("hook with environment", {"env": ["A=b"], "args": ["h", "x"], "timeout": 5}),
    hook("hook with bad environment", {"env": ["A"]}, "env[0]"),
    hook("hook that may take no time", {"timeout": 0}, "timeout", reference=SANITY),
    hook("hook that may take less than no time", {"timeout": -1}, "timeout", reference=SANITY),
    # mounts
    mount("mount with options", {"options": ["ro", "nosuid", "rbind", "size=5m"], "type": "bind"}),
    mount("mount of another type", {"hostPath": "tmpfs", "type": "tmpfs"}),
    mount("mount without source", {"hostPath": ""}, "hostPath"),
    mount("mount without destination", {"containerPath": ""}, "containerPath"),
    mount("mount to a relative path", {"containerPath": "b"}, "containerPath", reference=RELATIVE),
    mount("mount from a relative path", {"hostPath": "a"}, "hostPath", reference=RELATIVE),
    mount("mount with an empty option", {"options": [""]}, "options[0]", reference=SANITY),
    mount("mount with two options in one", {"options": ["ro,nosuid"]}, "options[0]", reference=SANITY),
    mount("mount read-only and writable", {"options": ["ro", "rw"]}, "options", reference=SANITY),
    # RDT
    edits("RDT class is the root", {"intelRdt": {"closID": "/"}}),
    edits("RDT class", {"intelRdt": {"closID": "gold", "l3CacheSchema": "L3:0=ff", "memBwSchema": "MB:0=70"}}),
    edits("RDT class with a slash", {"intelRdt": {"closID": "a/b"}}, "intelRdt.closID"),
    edits("RDT class is a dot", {"intelRdt": {"closID": ".."}}, "intelRdt.closID"),
    # groups
    edits("groups", {"additionalGids": [0, 44]}),
    edits("negative group id", {"additionalGids": [-1]}, "additionalGids[0]"),
    edits("group id too large", {"additionalGids": [2**32]}, "additionalGids[0]"),
    # annotations
    changed("annotations", lambda d: d.update(annotations={"example.com/a_b": "x", "c": ""})),
    changed("annotations of a device", lambda d: d["devices"][0].update(annotations={"a": "b"})),
    changed("annotation is a number", lambda d: d.update(annotations={"a": 1}), "annotations[a]", reference=YAML),
    changed(
        "annotation with a bad name",
        lambda d: d.update(annotations={"a b": "x"}),
        "annotations[a b]",
        reference=ANNOTATIONS,
    ),
    changed(
        "annotation with a bad prefix",
        lambda d: d.update(annotations={"-a/b": "x"}),
        "annotations[-a/b]",
        reference=ANNOTATIONS,
    ),
    changed(
        "annotation with a long name",
        lambda d: d["devices"][0].update(annotations={"a" * 64: "x"}),
        f"devices[0].annotations[{'a' * 64}]",
        reference=ANNOTATIONS,
    ),
    changed(
        "annotations of 257 KiB",
        lambda d: d.update(annotations={"a": "x" * 257 * 1024}),
        "annotations",
        reference=ANNOTATIONS,
    ),
)
