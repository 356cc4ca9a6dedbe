"""Older versions of the API read as ``resource.k8s.io/v1``: raw JSON in, raw JSON out.

``v1beta2`` (and ``v1alpha3`` for DeviceTaintRule) has the structure of v1. In ``v1beta1`` the contents of a device sit
in ``basic`` and the fields of a request directly on it instead of in ``exactly``; a slice's ``nodeName`` and
``allNodes`` are plain values whose zero means absent.
Source: pkg/apis/resource/v1beta1/conversion.go (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GROUP: Final = "resource.k8s.io"
V1: Final = f"{GROUP}/v1"
SAME_AS_V1: Final = frozenset({V1, f"{GROUP}/v1beta2", f"{GROUP}/v1alpha3"})
V1BETA1: Final = f"{GROUP}/v1beta1"

_REQUEST_FIELDS: Final = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
# Plain values, for which Go can't tell zero from absent; the others are absent only when null.
_PLAIN: Final = frozenset({"deviceClassName", "allocationMode", "count"})


def to_v1(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The v1 form of an object of any served version; ``raw`` itself when nothing has to change.

    What does not have the expected shape is left as it is for the reader of v1 to complain about.
    """
    version = raw.get("apiVersion")
    if version == V1BETA1:
        changed = dict(raw)
        spec = raw.get("spec")
        if isinstance(spec, dict):
            changed["spec"] = _SPECS.get(str(raw.get("kind")), _unchanged)(spec)
    elif version != V1 and version in SAME_AS_V1:
        changed = dict(raw)
    else:
        return raw
    changed["apiVersion"] = V1
    return changed


def _unchanged(spec: dict[str, Any]) -> dict[str, Any]:
    return spec


def _slice_spec(spec: dict[str, Any]) -> dict[str, Any]:
    changed = {key: value for key, value in spec.items() if value or key not in {"nodeName", "allNodes"}}
    if isinstance(spec.get("devices"), list):
        changed["devices"] = [_device(device) for device in spec["devices"]]
    return changed


def _device(device: Any) -> Any:
    if not isinstance(device, dict) or not isinstance(device.get("basic"), dict):
        return device
    return {**{key: value for key, value in device.items() if key != "basic"}, **device["basic"]}


def _claim_spec(spec: dict[str, Any]) -> dict[str, Any]:
    devices = spec.get("devices")
    if not isinstance(devices, dict) or not isinstance(devices.get("requests"), list):
        return spec
    return {**spec, "devices": {**devices, "requests": [_request(request) for request in devices["requests"]]}}


def _request(request: Any) -> Any:
    if not isinstance(request, dict):
        return request
    exactly = {key: request[key] for key in _REQUEST_FIELDS if request.get(key) is not None}
    changed = {key: value for key, value in request.items() if key not in exactly}
    if any(value or key not in _PLAIN for key, value in exactly.items()):
        changed["exactly"] = exactly
    return changed


def _template_spec(spec: dict[str, Any]) -> dict[str, Any]:
    inner = spec.get("spec")
    return {**spec, "spec": _claim_spec(inner)} if isinstance(inner, dict) else spec


_SPECS: Final = {
    "ResourceSlice": _slice_spec,
    "ResourceClaim": _claim_spec,
    "ResourceClaimTemplate": _template_spec,
}
