"""Facts of GPU models, from ``data/models.json``.

They describe GPUs that are not there (profiles, tests). A real GPU is always asked through NVML: even the memory of a
MIG profile differs by driver branch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One way to cut a GPU (nvmlGpuInstanceProfileInfo).

    Attributes:
        name: as in ``nvidia-smi mig -lgip`` without the prefix ``MIG``, e.g. ``1g.10gb+me``.
        index: number with which NVML lists profiles (NVML_GPU_INSTANCE_PROFILE_*).
        id: number with which an instance is created; another one than ``index``.
        slices: compute slices.
        max_count: instances of this profile that fit on an empty GPU.
        memory_mib: memorySizeMB.
        placement_starts, placement_size: memory slices that an instance may occupy.
        p2p: peer-to-peer between instances.
    """

    name: str
    index: int
    id: int
    slices: int
    max_count: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    placement_starts: tuple[int, ...]
    placement_size: int
    p2p: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigFacts:
    """MIG of a model: compute and memory slices, and the profiles.

    Attributes:
        toggles_without_reset: the mode changes at once (Hopper and later); else only by a reset of the GPU.
    """

    slices: int
    memory_slices: int
    max_devices: int
    toggles_without_reset: bool
    profiles: tuple[MigProfile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLinkFacts:
    """NVLink ports of a model; whether they are in use is a matter of the machine.

    Attributes:
        megabytes_per_second: per link and direction.
    """

    links: int
    generation: int
    megabytes_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One product as NVML reports it.

    Attributes:
        key: name of the entry in the data file.
        pci_device_id: PCI device number (vendor 10de).
        brand, architecture: NVML's codes (:mod:`dra_driver.inventory.codes`).
        memory_bytes: nvmlDeviceGetMemoryInfo().total; None on unified-memory parts.
    """

    key: str
    product_name: str
    pci_device_id: int
    brand: int
    architecture: int
    compute_capability: tuple[int, int]
    memory_bytes: int | None
    multiprocessors: int
    power_limit_watts: int
    nvlink: NvLinkFacts | None
    mig: MigFacts | None


@cache
def models() -> Mapping[str, GpuModel]:
    """All models by key."""
    raw = json.loads(data_text("models.json"))["models"]
    return MappingProxyType({key: _model(key, entry) for key, entry in raw.items()})


def data_text(name: str) -> str:
    """A file of the package's ``data`` folder."""
    return resources.files("dra_driver.inventory.data").joinpath(name).read_text(encoding="utf-8")


def _model(key: str, entry: Mapping[str, Any]) -> GpuModel:
    major, minor = entry["compute_capability"]
    return GpuModel(
        key=key,
        product_name=entry["product_name"],
        pci_device_id=int(entry["pci_device_id"], 16),
        brand=entry["brand"],
        architecture=entry["architecture"],
        compute_capability=(major, minor),
        memory_bytes=entry["memory_bytes"],
        multiprocessors=entry["multiprocessors"],
        power_limit_watts=entry["power_limit_watts"],
        nvlink=NvLinkFacts(**entry["nvlink"]) if entry["nvlink"] else None,
        mig=_mig(entry["mig"]) if entry["mig"] else None,
    )


def _mig(entry: Mapping[str, Any]) -> MigFacts:
    return MigFacts(
        slices=entry["slices"],
        memory_slices=entry["memory_slices"],
        max_devices=entry["max_devices"],
        toggles_without_reset=entry["toggles_without_reset"],
        profiles=tuple(_mig_profile(profile) for profile in entry["profiles"]),
    )


def _mig_profile(entry: Mapping[str, Any]) -> MigProfile:
    facts = {name: value for name, value in entry.items() if name != "estimated_fields"}
    return MigProfile(**{**facts, "placement_starts": tuple(entry["placement_starts"])})
