"""NVLink links in use.

Counted are the links whose state is enabled, as NVML tells for each: not the ports of the model, because bridges may be
missing, links may have failed, and all are down in MIG mode. If one link can't be asked the number is unknown.
"""

from __future__ import annotations

from dra_driver.inventory import codes
from dra_driver.inventory.nvml.calls import INVALID_ARGUMENT, NOT_SUPPORTED, NvmlFailure, call
from dra_driver.inventory.nvml.reading import Reading
from dra_driver.inventory.nvml.session import Handle

MOST_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of nvml.h 13; pynvml's own constant is older."""


def read_links(reading: Reading, handle: Handle) -> tuple[int | None, str | None]:
    """Number of enabled links (None: no links, or unknown) and their version, e.g. ``4.0``."""
    enabled = reading.attempt("nvlinkCount", lambda: _enabled_links(handle))
    if enabled is None:
        return None, None
    return len(enabled), _version(reading, handle, enabled[0]) if enabled else None


def _enabled_links(handle: Handle) -> list[int] | None:
    """Numbers of the enabled links; None for a GPU without links."""
    enabled, present = [], False
    for link in range(MOST_LINKS):
        try:
            state = call("nvmlDeviceGetNvLinkState", handle, link)
        except NvmlFailure as failure:
            if failure.code == INVALID_ARGUMENT:  # past the last link
                break
            if failure.code == NOT_SUPPORTED:  # this port does not exist
                continue
            raise
        present = True
        if state:
            enabled.append(link)
    return enabled if present else None


def _version(reading: Reading, handle: Handle, link: int) -> str | None:
    code = reading.optional("nvlinkVersion", "nvmlDeviceGetNvLinkVersion", handle, link)
    if code is None:
        return None
    version = codes.NVLINK_VERSIONS.get(int(code))
    if version is None:
        reading.problem("nvlinkVersion", f"NVML tells the version code {code}, which this release does not know")
    return version
