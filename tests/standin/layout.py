"""The state file's structs as ctypes sees them: the mirror of ``native/state.h``, field for field."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_uint8, c_uint32, c_uint64
from typing import Any

STATE_MAGIC = 0x4C4D564E
LAYOUT_VERSION = 1

MAX_GPUS = 16
MAX_PROFILES = 20
MAX_PLACEMENTS = 8
MAX_GPU_INSTANCES = 15
MAX_COMPUTE_INSTANCES = 8
MAX_EVENTS = 64
MAX_INJECTIONS = 64
MAX_NVLINKS = 36

NO_GPU = 0xFFFFFFFF
UNSUPPORTED = 0xFFFFFFFF


def _numbers(names: str) -> list[tuple[str, Any]]:
    return [(name, c_uint32) for name in names.split()]


class MigProfile(ctypes.Structure):
    """``struct mig_profile``."""

    _fields_ = [
        *_numbers(
            "index id slices max_count multiprocessors copy_engines decoders encoders jpeg_engines ofa_engines "
            "memory_mib p2p placement_count"
        ),
        ("placement_starts", c_uint32 * MAX_PLACEMENTS),
        ("placement_size", c_uint32),
        ("name", c_char * 40),
    ]


class ComputeInstance(ctypes.Structure):
    """``struct compute_instance``."""

    _fields_ = [*_numbers("used id profile start slices multiprocessors"), ("uuid", c_char * 96)]


class GpuInstance(ctypes.Structure):
    """``struct gpu_instance``."""

    _fields_ = [
        *_numbers("used id profile_slot start size"),
        ("compute_instances", ComputeInstance * MAX_COMPUTE_INSTANCES),
    ]


class GpuState(ctypes.Structure):
    """``struct gpu``."""

    _fields_ = [
        *_numbers(
            "attached lost minor brand architecture compute_major compute_minor multiprocessors "
            "pci_domain pci_bus pci_device pci_device_id pci_subsystem_id module_id memory_numa_node addressing_mode "
            "virtualization_mode compute_mode persistence_mode ecc_mode ecc_pending_mode power_usage_mw power_limit_mw "
            "temperature temperature_slowdown temperature_shutdown utilization_gpu utilization_memory "
            "retired_pages_pending remapped_correctable remapped_uncorrectable remapped_pending remapped_failure "
            "nvlink_count nvlink_version nvlink_speed_mbps nvlink_to_switch"
        ),
        ("nvlink_states", c_uint32 * MAX_NVLINKS),
        *_numbers("fabric_newest fabric_state fabric_status fabric_clique_id fabric_health_mask fabric_health_summary"),
        ("fabric_cluster_uuid", c_uint8 * 16),
        *_numbers(
            "mig_capable mig_current mig_pending mig_toggles_without_reset mig_slices mig_memory_slices "
            "mig_max_devices profile_count"
        ),
        ("memory_total", c_uint64),
        ("memory_used", c_uint64),
        ("memory_reserved", c_uint64),
        ("ecc_volatile_corrected", c_uint64),
        ("ecc_volatile_uncorrected", c_uint64),
        ("ecc_aggregate_corrected", c_uint64),
        ("ecc_aggregate_uncorrected", c_uint64),
        ("supported_events", c_uint64),
        ("clocks_event_reasons", c_uint64),
        ("name", c_char * 96),
        ("uuid", c_char * 96),
        ("serial", c_char * 32),
        ("board_part_number", c_char * 32),
        ("vbios_version", c_char * 32),
        ("profiles", MigProfile * MAX_PROFILES),
        ("gpu_instances", GpuInstance * MAX_GPU_INSTANCES),
    ]


class Event(ctypes.Structure):
    """``struct event``."""

    _fields_ = [
        *_numbers("gpu gpu_instance compute_instance reserved"),
        ("type", c_uint64),
        ("data", c_uint64),
    ]


class Injection(ctypes.Structure):
    """``struct injection``."""

    _fields_ = [("function", c_char * 64), *_numbers("used gpu error remaining delay_ms hits")]


class State(ctypes.Structure):
    """``struct state``: the whole file."""

    _fields_ = [
        *_numbers("magic layout_version layout_size driver_loaded driver_epoch cuda_version event_count uuid_serial"),
        ("library_version", c_char * 80),
        ("kernel_version", c_char * 80),
        ("events", Event * MAX_EVENTS),
        ("injections", Injection * MAX_INJECTIONS),
        ("gpus", GpuState * MAX_GPUS),
    ]


SIZE: int = ctypes.sizeof(State)
"""Size of the state file in bytes."""

MIRRORED: dict[str, type[ctypes.Structure]] = {
    "mig_profile": MigProfile,
    "compute_instance": ComputeInstance,
    "gpu_instance": GpuInstance,
    "gpu": GpuState,
    "event": Event,
    "injection": Injection,
    "state": State,
}
"""C struct names and their mirrors, for the comparison with the table that the library exports."""
