"""Described machines: variables that tell every GPU of a container, and nothing that pretends to be hardware."""

from __future__ import annotations

import json

from dra_driver.cdi.described import DescribedEdits
from dra_driver.cdi.edits import EditsSource
from dra_driver.cdi.render import render
from dra_driver.cdi.spec import CdiDevice, ContainerEdits
from dra_driver.cdi.validate import validate
from dra_driver.inventory.hardware import Gpu

GPUS = [Gpu(index=n, minor=n, uuid=f"GPU-{n}", name="NVIDIA H100 80GB HBM3") for n in range(2)]


def test_environment_only_and_every_gpu_shows() -> None:
    source: EditsSource = DescribedEdits("profile:dgx-h100")
    edits = [source.common(), *map(source.gpu, GPUS)]
    assert edits == [
        ContainerEdits(env=("DRA_DRIVER_DESCRIBED_MACHINE=profile:dgx-h100", "NVIDIA_VISIBLE_DEVICES=void")),
        ContainerEdits(
            env=("DRA_DRIVER_DESCRIBED_GPU_0=GPU-0", "DRA_DRIVER_DESCRIBED_GPU_0_NAME=NVIDIA H100 80GB HBM3")
        ),
        ContainerEdits(
            env=("DRA_DRIVER_DESCRIBED_GPU_1=GPU-1", "DRA_DRIVER_DESCRIBED_GPU_1_NAME=NVIDIA H100 80GB HBM3")
        ),
    ]
    names = [variable.partition("=")[0] for part in edits for variable in part.env]
    assert len(names) == len(set(names)), "variables of two devices would replace each other"


def test_it_says_so() -> None:
    (warning,) = DescribedEdits("profile:dgx-h100").warnings
    assert "profile:dgx-h100" in warning
    assert "DRA_DRIVER_DESCRIBED_GPU_" in warning


def test_spec_is_valid_and_old_enough_for_every_runtime() -> None:
    source = DescribedEdits("profile:dgx-h100")
    data = render("k8s.gpu.nvidia.com/claim", [CdiDevice(name="uid-gpu-0", edits=source.gpu(GPUS[0]))], source.common())
    raw = json.loads(data)
    assert validate(raw) == []
    assert raw["cdiVersion"] == "0.3.0"
