"""Edits for a machine that exists only as a profile: environment variables that say so, and nothing else.

Development clusters without GPUs run the driver on a described machine. Containers there get no device nodes; these
variables tell them, and whoever looks at them, which GPUs the claim stands for. Each GPU has variables of its own,
since a variable set for two devices of one container would keep the last value only.
"""

from __future__ import annotations

from collections.abc import Sequence

from dra_driver.cdi.discovery.edits import NOT_BY_OTHER_MEANS
from dra_driver.cdi.spec import ContainerEdits
from dra_driver.inventory.hardware import Gpu

MACHINE_VARIABLE = "DRA_DRIVER_DESCRIBED_MACHINE"
GPU_VARIABLE = "DRA_DRIVER_DESCRIBED_GPU_"
"""Followed by the GPU's minor number: ``DRA_DRIVER_DESCRIBED_GPU_3=GPU-…``, and with ``_NAME`` its product name."""


class DescribedEdits:
    """`dra_driver.cdi.edits.EditsSource` for ``source``, the machine's ``profile:<name>``."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._common = ContainerEdits(env=(f"{MACHINE_VARIABLE}={source}", NOT_BY_OTHER_MEANS))
        self._gpus: dict[Gpu, ContainerEdits] = {}

    def common(self) -> ContainerEdits:
        """The machine's name, and ``NVIDIA_VISIBLE_DEVICES=void``: no NVIDIA runtime may add real GPUs."""
        return self._common

    def gpu(self, gpu: Gpu) -> ContainerEdits:
        """The GPU's UUID and product name."""
        edits = self._gpus.get(gpu)
        if edits is None:
            variable = f"{GPU_VARIABLE}{gpu.minor}"
            edits = ContainerEdits(env=(f"{variable}={gpu.uuid}", f"{variable}_NAME={gpu.name}"))
            self._gpus[gpu] = edits
        return edits

    def kept(self, gpus: Sequence[Gpu], since: float) -> DescribedEdits:
        """Nothing here is ever searched."""
        return self

    @property
    def warnings(self) -> tuple[str, ...]:
        """Always one: nothing here is real."""
        return (
            f"this node is described by {self._source}: containers get environment variables ({GPU_VARIABLE}<minor>) "
            "instead of GPUs",
        )
