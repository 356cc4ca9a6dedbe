"""Described machines: hardware that exists only as data, for development clusters, the checker and tests.

A described machine gives the same values as a real one, so nothing above can tell them apart except by
:attr:`Machine.described`. It has no device nodes. Facts about GPU models and machines are in ``data/``; what
identifies one GPU (UUID, serial number) is derived from the node's name, so that it is the same at every start and
differs between nodes.
"""

from __future__ import annotations

import difflib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from dra_driver.errors import InputError
from dra_driver.inventory import codes
from dra_driver.inventory.gpu_models import GpuModel, data_text, models
from dra_driver.inventory.hardware import DriverState, Fabric, Gpu, Machine

DEFAULT_NODE_NAME = "described-node"
DEFAULT_RACK = "rack-0"

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "profile.dra-driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where one GPU sits in a machine.

    Attributes:
        module_id: number of the SXM socket; None for cards.
    """

    pci_bus_id: str
    pcie_root: str
    numa_node: int | None
    module_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLayout:
    """NVLink fabric of a machine with NVSwitches.

    Attributes:
        multi_node: the fabric spans machines (NVL72) and so has a cluster UUID.
    """

    multi_node: bool
    clique_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLayout:
    """One machine of ``data/machines.json``.

    Attributes:
        addressing_mode: ``HMM``, ``ATS`` or ``None`` as published.
        ecc: None when the GPUs have no ECC to switch.
        nvlinks: links in use per GPU; None when there are none.
    """

    name: str
    title: str
    model: GpuModel
    driver_version: str
    cuda_driver_version: tuple[int, int]
    addressing_mode: str
    ecc: bool | None
    nvlinks: int | None
    fabric: FabricLayout | None
    gpus: tuple[Position, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """What ``dra-driver profiles`` lists about one described machine.

    Attributes:
        memory_bytes: of one GPU; None on unified-memory parts.
        nvlink: links and version, e.g. ``18 x NVLink 4.0``; empty without.
        numa_nodes, pcie_roots: how many different ones the GPUs hang on; 0 when the platform tells none.
        multi_node_nvlink: GPUs share an NVLink domain with other nodes of the rack.
    """

    name: str
    title: str
    product_name: str
    gpu_count: int
    memory_bytes: int | None
    mig_capable: bool
    nvlink: str
    numa_nodes: int
    pcie_roots: int
    multi_node_nvlink: bool
    driver_version: str


class DescribedInventory:
    """The inventory of a described machine.

    Args:
        text: ``NAME`` or ``NAME:gpus=N`` for the first N positions of the layout, from 1 to as many as the machine
            has. More can't be had, because their places would have to be invented. A leading ``profile:`` is accepted.
        node_name: identifies the node: UUIDs and serial numbers follow from it.
        rack: nodes of one rack share the cluster UUID of a multi-node NVLink fabric.

    Raises:
        InputError: no such profile, or an impossible count.
    """

    def __init__(self, text: str, *, node_name: str = DEFAULT_NODE_NAME, rack: str = DEFAULT_RACK) -> None:
        self.layout, self.count = parse(text)
        self.node_name = node_name
        self.rack = rack

    def discover(self) -> Machine:
        """The machine; always the same answer."""
        layout = self.layout
        return Machine(
            state=DriverState.READY,
            source=f"profile:{layout.name}",
            driver_version=layout.driver_version,
            cuda_driver_version=layout.cuda_driver_version,
            gpus=tuple(self._gpu(index, layout.gpus[index]) for index in range(self.count)),
        )

    def close(self) -> None:
        """Nothing is held; here for likeness with the real inventory."""

    def _gpu(self, index: int, position: Position) -> Gpu:
        layout, model = self.layout, self.layout.model
        identity = uuid.uuid5(_NAMESPACE, f"{self.node_name}/{layout.name}/{index}")
        mig = None if model.mig is None else False
        return Gpu(
            index=index,
            minor=index,
            uuid=f"GPU-{identity}",
            name=model.product_name,
            brand=codes.BRANDS.get(model.brand, codes.UNKNOWN),
            architecture=codes.ARCHITECTURES.get(model.architecture, codes.UNKNOWN),
            compute_capability=model.compute_capability,
            memory_bytes=model.memory_bytes,
            pci_bus_id=position.pci_bus_id,
            pcie_root=position.pcie_root,
            numa_node=position.numa_node,
            addressing_mode=layout.addressing_mode,
            module_id=position.module_id,
            serial=f"{identity.int % 10**13:013d}",
            ecc_enabled=layout.ecc,
            mig_enabled=mig,
            mig_pending=mig,
            nvlink_count=layout.nvlinks,
            nvlink_version=nvlink_version(layout),
            power_limit_watts=model.power_limit_watts,
            fabric=fabric(layout, self.rack),
        )


def names() -> tuple[str, ...]:
    """Names of all described machines, sorted."""
    return tuple(sorted(layouts()))


def describe(name: str) -> ProfileSummary:
    """What a listing says about a profile (``NAME`` or ``NAME:gpus=N``).

    Raises:
        InputError: no such profile, or an impossible count.
    """
    layout, count = parse(name)
    positions = layout.gpus[:count]
    version = nvlink_version(layout)
    return ProfileSummary(
        name=layout.name,
        title=layout.title,
        product_name=layout.model.product_name,
        gpu_count=count,
        memory_bytes=layout.model.memory_bytes,
        mig_capable=layout.model.mig is not None,
        nvlink=f"{layout.nvlinks} x NVLink {version}" if layout.nvlinks else "",
        numa_nodes=len({position.numa_node for position in positions if position.numa_node is not None}),
        pcie_roots=len({position.pcie_root for position in positions}),
        multi_node_nvlink=layout.fabric is not None and layout.fabric.multi_node,
        driver_version=layout.driver_version,
    )


def parse(text: str) -> tuple[MachineLayout, int]:
    """``[profile:]NAME[:gpus=N]`` as a layout and a number of GPUs.

    Raises:
        InputError: as for :class:`DescribedInventory`.
    """
    name, colon, option = text.removeprefix("profile:").partition(":")
    layout = layouts().get(name)
    if layout is None:
        near = difflib.get_close_matches(name.lower(), layouts(), n=1)
        raise InputError(
            f"there is no profile {name!r}",
            hint=f"did you mean {near[0]}?" if near else f"the profiles are {', '.join(names())}",
        )
    most = len(layout.gpus)
    if not colon:
        return layout, most
    key, _, count_text = option.partition("=")
    if key != "gpus":
        raise InputError(f"profile {text!r}: unknown option {option!r}", hint=f"{name}:gpus=N takes the first N GPUs")
    if not (count_text.isascii() and count_text.isdigit()) or not 1 <= int(count_text) <= most:
        raise InputError(
            f"profile {text!r}: the number of GPUs must be between 1 and {most}, not {count_text!r}",
            hint=f"{name} alone has {most}",
        )
    return layout, int(count_text)


@cache
def layouts() -> Mapping[str, MachineLayout]:
    """All machines by name."""
    raw = json.loads(data_text("machines.json"))["machines"]
    return MappingProxyType({name: _layout(name, entry) for name, entry in raw.items()})


def nvlink_version(layout: MachineLayout) -> str | None:
    """NVLink version in use, e.g. ``4.0``; None without links."""
    links = layout.model.nvlink
    return f"{links.generation}.0" if layout.nvlinks and links is not None else None


def fabric(layout: MachineLayout, rack: str = DEFAULT_RACK) -> Fabric | None:
    """What a healthy GPU of this machine reports about its fabric; None where NVML supports no such question."""
    if layout.fabric is None:
        return None
    cluster = str(uuid.uuid5(_NAMESPACE, f"{layout.name}/{rack}")) if layout.fabric.multi_node else None
    return Fabric(
        state="completed", status=0, cluster_uuid=cluster, clique_id=layout.fabric.clique_id, health_summary=1
    )


def _layout(name: str, entry: Mapping[str, Any]) -> MachineLayout:
    major, minor = entry["cuda_driver_version"]
    return MachineLayout(
        name=name,
        title=entry["title"],
        model=models()[entry["model"]],
        driver_version=entry["driver_version"],
        cuda_driver_version=(major, minor),
        addressing_mode=entry["addressing_mode"],
        ecc=entry["ecc"],
        nvlinks=entry["nvlinks"],
        fabric=FabricLayout(**entry["fabric"]) if entry["fabric"] else None,
        gpus=tuple(Position(**position) for position in entry["gpus"]),
    )
