"""Where the YAML that a user applies lies, and how tests read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.apiserver import ApiServer

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
DESCRIBED = DEPLOY / "overlays" / "described"
DEVICE_CLASSES = REPOSITORY / "deviceclasses"
EXTENDED_RESOURCE_CLASS = DEVICE_CLASSES / "gpu.nvidia.com-extended-resource.yaml"
EXAMPLES = REPOSITORY / "examples"

NAMESPACE = "dra-driver"
ACCOUNT = "dra-driver-node"
DAEMON_SET = "dra-driver-node"


def objects(path: Path) -> list[dict[str, Any]]:
    """The objects of one YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def rendered(server: ApiServer, kustomization: Path) -> list[dict[str, Any]]:
    """The objects that ``kubectl apply -k`` would write."""
    return [document for document in yaml.safe_load_all(server.kubectl("kustomize", str(kustomization))) if document]


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The one object of that kind."""
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def containers(pod_spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Init containers and containers."""
    yield from pod_spec.get("initContainers", [])
    yield from pod_spec["containers"]
