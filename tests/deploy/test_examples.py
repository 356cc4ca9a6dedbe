"""Examples that ask for a layout: on which machines two GPUs have it, as the examples' comments say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.devices.allocatable import allocatable_devices
from dra_driver.inventory.profile import DescribedInventory

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
CLASSES = {
    document["metadata"]["name"]
    for path in (ROOT / "deviceclasses").glob("gpu*.yaml")
    for document in yaml.safe_load_all(path.read_text())
}


def claim_specs(path: Path) -> list[dict[str, Any]]:
    """The specs of the claims and claim templates of a manifest."""
    documents = list(yaml.safe_load_all(path.read_text()))
    templates = [each["spec"]["spec"] for each in documents if each["kind"] == "ResourceClaimTemplate"]
    return templates + [each["spec"] for each in documents if each["kind"] == "ResourceClaim"]


def most_alike(machine: str, attribute: str) -> int:
    """How many GPUs of the machine have the same value, at the most."""
    devices = allocatable_devices(DescribedInventory(machine, node_name="node-a").discover())
    name = attribute.removeprefix("gpu.nvidia.com/")
    values = Counter(
        allocatable.device.attributes[name].value
        for allocatable in devices.by_name.values()
        if name in allocatable.device.attributes
    )
    return max(values.values(), default=0)


@pytest.mark.parametrize(
    ("example", "machine", "fits"),
    [
        ("two-gpus-one-pcie-root", "dgx-a100", True),
        ("two-gpus-one-pcie-root", "l40s", True),
        ("two-gpus-one-pcie-root", "dgx-h100", False),
        ("two-gpus-one-pcie-root", "hgx-h100", False),
        ("two-gpus-one-pcie-root", "dgx-h200", False),
        ("two-gpus-one-pcie-root", "dgx-b200", False),
        ("same-nvlink-domain", "gb200-nvl72", True),
        ("same-nvlink-domain", "gb300-nvl72", True),
        ("same-nvlink-domain", "dgx-h100", False),
        ("same-nvlink-domain", "dgx-a100", False),
        ("same-nvlink-domain", "t4", False),
    ],
)
def test_machines_that_can_give_two_gpus_with_the_same_value(example: str, machine: str, fits: bool) -> None:
    (spec,) = claim_specs(ROOT / "examples" / f"{example}.yaml")
    (constraint,) = spec["devices"]["constraints"]
    assert (most_alike(machine, constraint["matchAttribute"]) >= 2) is fits


@pytest.mark.parametrize("machine", ["dgx-h100", "hgx-h100", "dgx-h200", "dgx-b200"])
def test_the_same_processor_is_what_machines_with_a_root_per_gpu_have(machine: str) -> None:
    assert most_alike(machine, "resource.kubernetes.io/numaNode") >= 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_use_shipped_classes(path: Path) -> None:
    used = {
        each["deviceClassName"]
        for spec in claim_specs(path)
        for request in spec["devices"]["requests"]
        for each in request.get("firstAvailable", [request.get("exactly")])
    }
    assert used <= CLASSES
    assert used or path.stem == "extended-resource"
