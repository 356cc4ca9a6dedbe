"""The Container Device Interface as immutable values, and the names and the version that follow from them.

Decided here:

- Values are frozen, so that edits found once for a driver can be shared by every claim; nothing is ever appended to a
  cached value.
- Zero and empty mean "not set", as in the JSON form of the reference library (container-device-interface): ``minor`` 0
  is left out there, too.
- The version written is the lowest that allows what is used, never a fixed one: consumers refuse files newer than
  they are (podman 4.3 reads up to 0.5.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KNOWN_VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""Every published version of the CDI specification, oldest first."""

_EARLIEST: Final = "0.3.0"
"""The oldest version that the reference library ever asks for."""

VENDOR: Final = "k8s.gpu.nvidia.com"
"""Vendor of the specs written per claim, as in NVIDIA's DRA driver."""

CLASS: Final = "claim"
"""Class of the specs written per claim, as in NVIDIA's DRA driver."""

_TO_MANGLE = re.compile(rb"[^A-Za-z0-9.:-]|[.:-]$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node to create in the container (``containerEdits.deviceNodes[]``).

    Attributes:
        path: absolute path in the container.
        host_path: absolute path on the host; empty when it is the same.
        type: ``c``, ``u`` (both character), ``b`` (block), ``p`` (FIFO) or empty: taken from the host node. With a
            type and a major number the host node need not exist.
        major, minor: device number; 0 is "not set".
        file_mode: permission bits.
        permissions: device cgroup access, letters of ``rwm`` or ``none``; empty is ``rwm``.
        uid, gid: owner; None lets the runtime decide.
    """

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount (``containerEdits.mounts[]``); ``type`` empty is a bind mount by its options."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """An OCI hook (``containerEdits.hooks[]``).

    Attributes:
        hook_name: the OCI stage, e.g. ``createContainer``.
        path: program on the host; ``args`` begins with the program's name as in execv(3).
        timeout: seconds.
    """

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface moved into the container (CDI 1.1.0)."""

    host_interface_name: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelRdt:
    """Resource Director Technology settings (CDI 0.7.0; ``schemata`` and ``enable_monitoring`` since 1.1.0)."""

    clos_id: str = ""
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEdits:
    """Everything that is changed in a container, for a device or for all devices of a spec.

    ``rendered`` belongs to `dra_driver.cdi.render`: the serialised form, made once. It is no part of the value.
    """

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()
    rendered: tuple[bytes, int] | None = field(default=None, init=False, repr=False, compare=False, hash=False)

    def __bool__(self) -> bool:
        """False when nothing is changed."""
        return bool(
            self.env
            or self.device_nodes
            or self.net_devices
            or self.hooks
            or self.mounts
            or self.intel_rdt
            or self.additional_gids
        )

    def __add__(self, other: ContainerEdits) -> ContainerEdits:
        """Both edits, ``other`` after ``self``; ``other``'s RDT settings win, group ids stay sorted and unique."""
        if not other:
            return self
        if not self:
            return other
        return ContainerEdits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            net_devices=self.net_devices + other.net_devices,
            hooks=self.hooks + other.hooks,
            mounts=self.mounts + other.mounts,
            intel_rdt=other.intel_rdt or self.intel_rdt,
            additional_gids=tuple(sorted({*self.additional_gids, *other.additional_gids})),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiDevice:
    """A named device of a spec; its edits must change something. Annotations: sorted pairs of key and value."""

    name: str
    edits: ContainerEdits
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One CDI spec file. ``kind`` is ``vendor/class``; ``common`` applies once to a container that uses its devices."""

    kind: str
    devices: tuple[CdiDevice, ...]
    common: ContainerEdits = ContainerEdits()
    annotations: tuple[tuple[str, str], ...] = ()


def edits_version(edits: ContainerEdits) -> int:
    """Index into `KNOWN_VERSIONS` of the lowest version that allows ``edits``."""
    needed = _EARLIEST
    if any(mount.type for mount in edits.mounts):
        needed = "0.4.0"
    if any(node.host_path for node in edits.device_nodes):
        needed = "0.5.0"
    if edits.intel_rdt is not None or edits.additional_gids:
        needed = "0.7.0"
    rdt = edits.intel_rdt
    if edits.net_devices or (rdt is not None and (rdt.schemata or rdt.enable_monitoring)):
        needed = "1.1.0"
    return KNOWN_VERSIONS.index(needed)


def header_version(kind: str, names: tuple[str, ...], *, annotated: bool) -> int:
    """Index into `KNOWN_VERSIONS` of the lowest version that allows ``kind`` and device ``names``, and annotations."""
    if annotated or "." in kind.partition("/")[2]:
        return KNOWN_VERSIONS.index("0.6.0")
    if any(name[:1].isdigit() for name in names):
        return KNOWN_VERSIONS.index("0.5.0")
    return KNOWN_VERSIONS.index(_EARLIEST)


def minimum_version(spec: Spec) -> str:
    """The lowest CDI version whose rules allow everything that ``spec`` uses; what is written as ``cdiVersion``."""
    annotated = bool(spec.annotations) or any(device.annotations for device in spec.devices)
    needed = header_version(spec.kind, tuple(device.name for device in spec.devices), annotated=annotated)
    return KNOWN_VERSIONS[max(needed, edits_version(spec.common), *(edits_version(d.edits) for d in spec.devices))]


def qualified_name(vendor: str, cls: str, name: str) -> str:
    """``vendor/class=name``: how a container runtime is asked for a device."""
    return f"{vendor}/{cls}={name}"


def device_name(claim_uid: str, device: str) -> str:
    """The CDI device name of ``device`` in a claim, ``<claimUID>-<device>``.

    DRA device names are DNS labels and stay as they are; see `mangled` for other text, e.g. the MIG profile
    ``1g.5gb+me``.
    """
    return f"{claim_uid}-{mangled(device)}"


def mangled(name: str) -> str:
    """``name`` fit for the end of a CDI device name: letters, digits, ``.``, ``:`` and ``-``, a letter or digit last.

    Every other byte of its UTF-8 form, and so ``_`` itself, becomes ``_`` and two hexadecimal digits (``+`` is
    ``_2b``). Different names stay different.
    """
    return _TO_MANGLE.sub(lambda found: b"_%02x" % found[0][0], name.encode()).decode()


def claim_spec_name(claim_uid: str) -> str:
    """File name of a claim's spec: ``k8s.gpu.nvidia.com-claim_<uid>.json``, as NVIDIA's DRA driver names its YAML."""
    return f"{VENDOR}-{CLASS}_{claim_uid}.json"


def as_json(spec: Spec) -> dict[str, Any]:
    """The plain JSON object of ``spec``; the straightforward form that `dra_driver.cdi.render` must equal."""
    result: dict[str, Any] = {"cdiVersion": minimum_version(spec), "kind": spec.kind}
    if spec.annotations:
        result["annotations"] = dict(spec.annotations)
    result["devices"] = [_device_as_json(device) for device in spec.devices]
    if spec.common:
        result["containerEdits"] = edits_as_json(spec.common)
    return result


def _device_as_json(device: CdiDevice) -> dict[str, Any]:
    result: dict[str, Any] = {"name": device.name}
    if device.annotations:
        result["annotations"] = dict(device.annotations)
    result["containerEdits"] = edits_as_json(device.edits)
    return result


def edits_as_json(edits: ContainerEdits) -> dict[str, Any]:
    """The ``containerEdits`` object; what is not set is left out."""
    rdt = edits.intel_rdt
    return _set(
        {
            "env": list(edits.env),
            "deviceNodes": [_node_as_json(node) for node in edits.device_nodes],
            "netDevices": [{"hostInterfaceName": n.host_interface_name, "name": n.name} for n in edits.net_devices],
            "hooks": [_hook_as_json(hook) for hook in edits.hooks],
            "mounts": [_mount_as_json(mount) for mount in edits.mounts],
            "intelRdt": None if rdt is None else _rdt_as_json(rdt),
            "additionalGids": list(edits.additional_gids),
        }
    )


def _node_as_json(node: DeviceNode) -> dict[str, Any]:
    return {"path": node.path} | _set(
        {
            "hostPath": node.host_path,
            "type": node.type,
            "major": node.major or None,
            "minor": node.minor or None,
            "fileMode": node.file_mode,
            "permissions": node.permissions,
            "uid": node.uid,
            "gid": node.gid,
        }
    )


def _hook_as_json(hook: Hook) -> dict[str, Any]:
    return {"hookName": hook.hook_name, "path": hook.path} | _set(
        {"args": list(hook.args), "env": list(hook.env), "timeout": hook.timeout}
    )


def _mount_as_json(mount: Mount) -> dict[str, Any]:
    return {"hostPath": mount.host_path, "containerPath": mount.container_path} | _set(
        {"options": list(mount.options), "type": mount.type}
    )


def _rdt_as_json(rdt: IntelRdt) -> dict[str, Any]:
    return _set(
        {
            "closID": rdt.clos_id,
            "l3CacheSchema": rdt.l3_cache_schema,
            "memBwSchema": rdt.mem_bw_schema,
            "schemata": list(rdt.schemata),
            "enableMonitoring": rdt.enable_monitoring or None,
        }
    )


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that are None, an empty text or an empty list."""
    return {key: value for key, value in fields.items() if value is not None and value not in ("", [])}


def from_json(raw: Mapping[str, Any]) -> Spec:
    """The values of a spec that `dra_driver.cdi.validate.validate` found no fault with."""
    return Spec(
        kind=raw["kind"],
        devices=tuple(
            CdiDevice(
                name=device["name"],
                edits=edits_from_json(device["containerEdits"]),
                annotations=tuple(sorted((device.get("annotations") or {}).items())),
            )
            for device in raw["devices"]
        ),
        common=edits_from_json(raw.get("containerEdits") or {}),
        annotations=tuple(sorted((raw.get("annotations") or {}).items())),
    )


def edits_from_json(raw: Mapping[str, Any]) -> ContainerEdits:
    """The values of a valid ``containerEdits`` object."""
    rdt = raw.get("intelRdt")
    return ContainerEdits(
        env=tuple(raw.get("env") or ()),
        device_nodes=tuple(
            DeviceNode(
                path=node["path"],
                host_path=node.get("hostPath") or "",
                type=node.get("type") or "",
                major=node.get("major") or 0,
                minor=node.get("minor") or 0,
                file_mode=node.get("fileMode"),
                permissions=node.get("permissions") or "",
                uid=node.get("uid"),
                gid=node.get("gid"),
            )
            for node in raw.get("deviceNodes") or ()
        ),
        net_devices=tuple(
            NetDevice(host_interface_name=net["hostInterfaceName"], name=net["name"])
            for net in raw.get("netDevices") or ()
        ),
        hooks=tuple(
            Hook(
                hook_name=hook["hookName"],
                path=hook["path"],
                args=tuple(hook.get("args") or ()),
                env=tuple(hook.get("env") or ()),
                timeout=hook.get("timeout"),
            )
            for hook in raw.get("hooks") or ()
        ),
        mounts=tuple(
            Mount(
                host_path=mount["hostPath"],
                container_path=mount["containerPath"],
                options=tuple(mount.get("options") or ()),
                type=mount.get("type") or "",
            )
            for mount in raw.get("mounts") or ()
        ),
        intel_rdt=None
        if rdt is None
        else IntelRdt(
            clos_id=rdt.get("closID") or "",
            l3_cache_schema=rdt.get("l3CacheSchema") or "",
            mem_bw_schema=rdt.get("memBwSchema") or "",
            schemata=tuple(rdt.get("schemata") or ()),
            enable_monitoring=bool(rdt.get("enableMonitoring")),
        ),
        additional_gids=tuple(raw.get("additionalGids") or ()),
    )
