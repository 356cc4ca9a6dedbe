"""A described machine as the stand-in's state: every value a real GPU of that model would report."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Mapping
from typing import Any

from dra_driver.inventory import codes
from dra_driver.inventory.gpu_models import MigFacts
from dra_driver.inventory.hardware import Gpu
from dra_driver.inventory.profile import MachineLayout
from tests.standin import layout

_SUPPORTED_EVENTS = 0x1 | 0x2 | 0x8 | 0x1000 | 0x2000 | 0x4000
_SUBSYSTEM = 0x16C110DE
_PROFILE_FIELDS = (
    *("index", "id", "slices", "max_count", "multiprocessors", "memory_mib", "p2p", "placement_size"),
    *("copy_engines", "decoders", "encoders", "jpeg_engines", "ofa_engines"),
)


def fill_gpu(state: layout.GpuState, gpu: Gpu, machine: MachineLayout, mig: bool) -> None:
    """Give one GPU of the state file the facts of its model and its place; MIG mode on or off."""
    model = machine.model
    domain, bus, device = (gpu.pci_bus_id or "").split(":")
    unknown = layout.UNSUPPORTED
    values: Mapping[str, Any] = {
        "attached": 1,
        "minor": gpu.minor,
        "brand": model.brand,
        "architecture": model.architecture,
        "compute_major": model.compute_capability[0],
        "compute_minor": model.compute_capability[1],
        "multiprocessors": model.multiprocessors,
        "pci_domain": int(domain, 16),
        "pci_bus": int(bus, 16),
        "pci_device": int(device.split(".")[0], 16),
        "pci_device_id": model.pci_device_id,
        "pci_subsystem_id": _SUBSYSTEM,
        "module_id": unknown if gpu.module_id is None else gpu.module_id,
        "memory_numa_node": 2 + gpu.index if machine.addressing_mode == "ATS" else unknown,
        "addressing_mode": next(code for code, word in codes.ADDRESSING_MODES.items() if word == gpu.addressing_mode),
        "persistence_mode": 1,
        "ecc_mode": unknown if gpu.ecc_enabled is None else int(gpu.ecc_enabled),
        "ecc_pending_mode": unknown if gpu.ecc_enabled is None else int(gpu.ecc_enabled),
        "power_usage_mw": 90_000,
        "power_limit_mw": model.power_limit_watts * 1000,
        "temperature": 35,
        "temperature_slowdown": 87,
        "temperature_shutdown": 92,
        "memory_total": gpu.memory_bytes or 0,
        "memory_used": 0,
        "memory_reserved": 512 * 2**20 if gpu.memory_bytes else 0,
        "supported_events": _SUPPORTED_EVENTS,
        "name": (gpu.name or "").encode(),
        "uuid": gpu.uuid.encode(),
        "serial": (gpu.serial or "").encode(),
        "board_part_number": b"900-00000-0000-000",
        "vbios_version": b"96.00.00.00.01",
    }
    for name, value in values.items():
        setattr(state, name, value)
    _fill_links(state, gpu, machine)
    if model.mig is not None:
        _fill_mig(state, model.mig, mig)


def _fill_links(state: layout.GpuState, gpu: Gpu, machine: MachineLayout) -> None:
    links = machine.model.nvlink
    if links is not None and machine.nvlinks:
        state.nvlink_count = links.links
        state.nvlink_version = codes.nvlink_code(links.generation)
        state.nvlink_speed_mbps = links.megabytes_per_second
        state.nvlink_to_switch = int(machine.fabric is not None or gpu.module_id is not None)
        for link in range(machine.nvlinks):
            state.nvlink_states[link] = 1
    state.fabric_newest = 3
    state.fabric_state = layout.UNSUPPORTED
    if gpu.fabric is not None:
        state.fabric_state = 3
        state.fabric_status = gpu.fabric.status
        state.fabric_clique_id = gpu.fabric.clique_id or 0
        state.fabric_health_summary = gpu.fabric.health_summary or 0
        if gpu.fabric.cluster_uuid:
            state.fabric_cluster_uuid[:] = list(uuids.UUID(gpu.fabric.cluster_uuid).bytes)


def _fill_mig(state: layout.GpuState, facts: MigFacts, enabled: bool) -> None:
    state.mig_capable = 1
    state.mig_current = state.mig_pending = int(enabled)
    state.mig_toggles_without_reset = int(facts.toggles_without_reset)
    state.mig_slices = facts.slices
    state.mig_memory_slices = facts.memory_slices
    state.mig_max_devices = facts.max_devices
    state.profile_count = len(facts.profiles)
    for slot, profile in zip(state.profiles, facts.profiles, strict=False):
        for name in _PROFILE_FIELDS:
            setattr(slot, name, int(getattr(profile, name)))
        slot.placement_count = len(profile.placement_starts)
        slot.placement_starts[: len(profile.placement_starts)] = list(profile.placement_starts)
        slot.name = profile.name.encode()
