"""NVML's numeric codes in the words that are published.

The words are those of NVIDIA's own driver, so selectors on ``brand`` and ``architecture`` keep working; a code that
is newer than these tables reads ``Unknown``. Codes are those of nvml.h (nvmlBrandType_t, NVML_DEVICE_ARCH_*,
nvmlNvlinkVersion_t, NVML_DEVICE_ADDRESSING_MODE_*, NVML_GPU_FABRIC_STATE_*).
"""

from __future__ import annotations

UNKNOWN = "Unknown"

BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}

ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}

NVLINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""nvmlDeviceGetNvLinkVersion answers a code, not the version: 6 stands for NVLink 4.0."""

ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}

FABRIC_STATES = {1: "not-started", 2: "in-progress", 3: "completed"}
"""State 0 (not supported) is no state: the GPU has no fabric."""


def nvlink_code(generation: int) -> int:
    """The code of ``<generation>.0``, the reverse of :data:`NVLINK_VERSIONS`."""
    return next(code for code, version in NVLINK_VERSIONS.items() if version == f"{generation}.0")
