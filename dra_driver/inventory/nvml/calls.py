"""Calls into NVML, and what its error codes mean for a GPU and for the session.

pynvml raises one class per code; here they become :class:`NvmlFailure`, which carries the code, so that readers decide
by code and nothing above this package knows pynvml.
"""

from __future__ import annotations

from typing import Any

import pynvml

from dra_driver.errors import EnvironmentFault

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28
UNKNOWN = 999

SESSION_OVER = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
"""The session is of no use any more: the driver was unloaded or exchanged under it. A new one may work."""

ABSENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH})
"""An answer rather than a failure: this GPU has no such thing, or this driver is too old to tell."""

_HINTS = {
    NO_PERMISSION: "run the driver's container privileged, or give it access to /dev/nvidiactl and /dev/nvidia*",
    8: "check the GPU's external power cables",
    DRIVER_NOT_LOADED: "load the NVIDIA kernel module (modprobe nvidia), or wait for the driver container",
    11: "the kernel gets no interrupts from the GPU: check the machine's firmware and the kernel log",
    LIBRARY_NOT_FOUND: "install the NVIDIA driver or set the driver root",
    14: "the GPU's infoROM is corrupt: contact the vendor",
    GPU_IS_LOST: "look for XID 79 in the kernel log, then reset the GPU or reboot the node",
    16: "reset the GPU: nvidia-smi --gpu-reset -i <index>",
    OPERATING_SYSTEM: "the container's device cgroup blocks the GPU: run the driver's container privileged",
    LIB_RM_VERSION_MISMATCH: "the driver's files and the loaded kernel module differ in version: reboot the node, or "
    "unload and load the NVIDIA kernel modules",
}


class NvmlFailure(EnvironmentFault):
    """An NVML function answered with an error.

    Attributes:
        function: name of the NVML function.
        code: nvmlReturn_t.
        cause: NVML's own words for the code.
    """

    def __init__(self, function: str, code: int, cause: str) -> None:
        self.function = function
        self.code = code
        self.cause = cause
        super().__init__(f"{function}: {cause}", hint=_HINTS.get(code))


def call(function: str, *arguments: Any) -> Any:
    """Call a function of pynvml.

    Raises:
        NvmlFailure: for every way in which it can fail, also for text that is not UTF-8 and for a function that the
            installed pynvml does not know.
    """
    wrapper = getattr(pynvml, function, None)
    if wrapper is None:
        raise NvmlFailure(function, FUNCTION_NOT_FOUND, "unknown to the installed nvidia-ml-py")
    try:
        return wrapper(*arguments)
    except pynvml.NVMLError as error:
        code = int(error.value)
        raise NvmlFailure(function, code, words(code)) from None
    except UnicodeDecodeError as error:
        raise NvmlFailure(function, UNKNOWN, f"answered with text that is not UTF-8: {error.object!r}") from None


def words(code: int) -> str:
    """NVML's text for a return code; needs no session."""
    try:
        return f"{pynvml.nvmlErrorString(code)} (NVML error {code})"
    except pynvml.NVMLError:  # no library is loaded
        return f"NVML error {code}"
