"""Claims, Pods and slices as small as minikubelet needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def claim(
    name: str, *devices: str, driver: str, uid: str = "", pods: Sequence[str] = (), request: str = "gpu"
) -> dict[str, Any]:
    """An allocated ResourceClaim in namespace ``default``: ``devices`` of pool ``node-1``, reserved for ``pods``."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": uid or f"uid-of-{name}"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": request,
                        "exactly": {
                            "deviceClassName": "any",
                            "allocationMode": "ExactCount",
                            "count": max(1, len(devices)),
                        },
                    }
                ]
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": request, "driver": driver, "pool": "node-1", "device": device} for device in devices
                    ]
                }
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-of-{pod}"} for pod in pods],
        },
    }


def pod(name: str, *claims: str) -> dict[str, Any]:
    """A Pod whose container ``main`` uses all the claims and whose container ``other`` uses none."""
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-of-{name}"},
        "spec": {
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            "containers": [
                {"name": "main", "resources": {"claims": [{"name": claim} for claim in claims]}},
                {"name": "other"},
            ],
        },
    }


def resource_slice(name: str, *, driver: str, node: str = "node-1") -> dict[str, Any]:
    """A slice with one device."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }


def prepared_devices(claims: Sequence[Any] | None) -> list[str]:
    """The device names in what ``MiniKubelet.claims`` says about one container."""
    return sorted(
        device["DeviceName"]
        for info in claims or []
        for state in info["DriverState"].values()
        for device in state["Devices"] or []
    )
