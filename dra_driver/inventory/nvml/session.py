"""One NVML session: which library is loaded, whether it is still the right one, and handles to GPUs.

The library is loaded by its absolute path below the driver root and handed to pynvml, which would otherwise only ask
the loader for ``libnvidia-ml.so.1`` by name. After an upgrade the file is another one, so it is loaded anew and the
session starts again; the old mapping stays, because a stuck call may still be in it, and symbols are local to each
library so that the old one can't answer for the new.

NVML lists the GPUs that were there when the session began. So the session also starts again when the kernel module's
own list of GPUs or its version has changed.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.nvml.calls import LIBRARY_NOT_FOUND, NvmlFailure, call

INIT_FLAG_NO_GPUS = 1
"""NVML_INIT_FLAG_NO_GPUS: a node whose GPUs are all gone (or still to come) is no failure."""

Handle = Any
"""An opaque nvmlDevice_t of pynvml; valid until the session starts again."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a session depends on: when it changes, a new session is needed."""

    library: tuple[str, int, int, int]
    kernel_version: str | None
    kernel_gpus: tuple[str, ...]


class NvmlSession:
    """At most one open session; safe for use by several threads.

    Attributes:
        generation: counts the sessions; handles belong to one generation.
    """

    def __init__(self, *, sysfs: Path, proc: Path) -> None:
        self.generation = 0
        self._sysfs = sysfs
        self._proc = proc
        self._opened_in: Surroundings | None = None
        self._loaded: tuple[str, int, int, int] | None = None
        self._loads = 0
        self._handles: dict[str, Handle] = {}
        self._borrowed = 0
        self._changed = threading.Condition()

    @property
    def is_open(self) -> bool:
        """Whether a session is open; it may be of no use any more."""
        return self._opened_in is not None

    def open(self, library: Path) -> bool:
        """Have a session with this library in the present surroundings; True when it is a new one.

        Raises:
            NvmlFailure: the driver can't be reached, with NVML's code.
            EnvironmentFault: the library can't be loaded.
        """
        surroundings = Surroundings(_identity(library), self.kernel_version(), self._kernel_gpus())
        with self._changed:
            if self._opened_in == surroundings or (self.is_open and self._borrowed):
                return False
        self.close()
        self._load(library, surroundings.library)
        call("nvmlInitWithFlags", INIT_FLAG_NO_GPUS)
        with self._changed:
            self._opened_in = surroundings
            self.generation += 1
        return True

    def close(self) -> None:
        """End the session; none open is fine. Handles that are lent out keep it open."""
        with self._changed:
            if not self.is_open or self._borrowed:
                return
            self._opened_in = None
            self._handles.clear()
        try:
            call("nvmlShutdown")
        except NvmlFailure:
            # The session is over on our side in any case. NVML counts sessions: if it still holds one, the next init
            # joins it, and a failure of that is reported there.
            return

    def remember(self, uuid: str, handle: Handle) -> None:
        """Keep the handle of a GPU, because looking one up by UUID can take NVML many seconds."""
        with self._changed:
            self._handles[uuid] = handle

    @contextmanager
    def handle(self, uuid: str) -> Iterator[Handle]:
        """The handle of a GPU or MIG device; while it is lent out the session stays.

        Raises:
            NvmlFailure: there is no such device, or no session.
        """
        with self._changed:
            self._borrowed += 1
            known = self._handles.get(uuid)
        try:
            if known is None:
                known = call("nvmlDeviceGetHandleByUUID", uuid)
                self.remember(uuid, known)
            yield known
        finally:
            with self._changed:
                self._borrowed -= 1

    def kernel_version(self) -> str | None:
        """Version of the loaded kernel module, from /proc/driver/nvidia/version; None when it is not loaded or
        hidden."""
        try:
            text = (self._proc / "driver/nvidia/version").read_text(errors="replace")
        except OSError:
            return None
        match = re.search(r"NVRM version:.*?\s(\d+(?:\.\d+)+)", text)
        return match[1] if match else None

    def _kernel_gpus(self) -> tuple[str, ...]:
        names: set[str] = set()
        for folder in (self._proc / "driver/nvidia/gpus", self._sysfs / "bus/pci/drivers/nvidia"):
            try:
                names.update(entry for entry in os.listdir(folder) if ":" in entry)
            except OSError:  # no driver, or not mounted here: then there is nothing to compare
                continue
        return tuple(sorted(names))

    def _load(self, library: Path, identity: tuple[str, int, int, int]) -> None:
        if self._loaded == identity and pynvml.nvmlLib is not None:
            return
        # The loader takes a name that it has seen for the library that it had then, whatever file lies there now.
        self._loads += 1
        name = f"{library.parent}/{'./' * self._loads}{library.name}"
        try:
            loaded = ctypes.CDLL(name)
        except OSError as error:
            raise EnvironmentFault(
                f"can't load the NVIDIA driver's library {library}: {error}",
                hint="the file is damaged or lacks a library it needs: reinstall the driver, or check the driver root",
            ) from None
        with pynvml.libLoadLock:
            pynvml.nvmlLib = loaded
            pynvml._nvmlGetFunctionPointer_cache.clear()
        self._loaded = identity


def _identity(library: Path) -> tuple[str, int, int, int]:
    """What tells one file from its successor: an upgrade replaces it, sometimes under the same name."""
    try:
        info = library.stat()
    except OSError as error:
        raise NvmlFailure("dlopen", LIBRARY_NOT_FOUND, f"{library}: {error.strerror}") from None
    return str(library), info.st_dev, info.st_ino, info.st_mtime_ns
