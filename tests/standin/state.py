"""A stand-in for a node's GPUs: what tests create, change and break."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import uuid as uuids
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.profile import DescribedInventory, MachineLayout
from tests.standin import kernel, layout
from tests.standin.build import LIBRARY_NAME, library
from tests.standin.machine import fill_gpu

ERRORS = {
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "INSUFFICIENT_SIZE": 7,
    "INSUFFICIENT_POWER": 8,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "IRQ_ISSUE": 11,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "OPERATING_SYSTEM": 17,
    "LIB_RM_VERSION_MISMATCH": 18,
    "IN_USE": 19,
    "MEMORY": 20,
    "INSUFFICIENT_RESOURCES": 23,
    "ARGUMENT_VERSION_MISMATCH": 25,
    "NOT_READY": 27,
    "UNKNOWN": 999,
}
"""NVML's error codes by the names that faults are given."""

WHOLE_GPU = 0xFFFFFFFF
"""GPU and compute instance of an event that concerns the whole GPU."""


class Standin:
    """The GPUs of one machine, held in a file that every process with the stand-in library sees.

    Attributes:
        directory: where the state file, a driver root and the kernel's files lie.
        machine: the described machine that the state was built from; ``machine.gpus[i]`` are the values a faultless
            inventory of the same machine has, apart from what a test changed.
        driver_root: a root with the library in place, as a driver package would install it.
        sysfs, proc: the kernel's files.
    """

    def __init__(self, directory: Path, described: DescribedInventory) -> None:
        self.directory = directory
        self.machine = described.discover()
        self._layout: MachineLayout = described.layout
        self.state_file = directory / "nvml.state"
        self.sysfs = directory / "sys"
        self.proc = directory / "proc"
        self.driver_root = DriverRoot(directory / "driver")
        self._file = os.open(self.state_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, layout.SIZE)
        self._map = mmap.mmap(self._file, layout.SIZE)
        self.state = layout.State.from_buffer(self._map)

    @classmethod
    def create(
        cls,
        directory: Path,
        profile: str = "dgx-h100",
        *,
        count: int | None = None,
        node_name: str = "standin",
        rack: str = "rack-0",
        driver_version: str | None = None,
        mig: bool = False,
    ) -> Standin:
        """The machine of a profile with its first ``count`` GPUs (default: all), MIG mode on or off."""
        directory.mkdir(parents=True, exist_ok=True)
        text = profile if count is None else f"{profile}:gpus={count}"
        standin = cls(directory, DescribedInventory(text, node_name=node_name, rack=rack))
        standin._fill(driver_version, mig)
        standin.install(standin.driver_root.path)
        standin._write_kernel_files()
        return standin

    def close(self) -> None:
        """Let go of the file; processes that mapped it keep it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def env(self) -> dict[str, str]:
        """Environment in which any NVML client finds this machine."""
        return {"NVML_STANDIN_STATE": str(self.state_file), "LD_LIBRARY_PATH": str(self.library.parent)}

    @property
    def library(self) -> Path:
        """The library, named ``libnvidia-ml.so.1``."""
        return library()

    def install(self, root: Path, *, version: str | None = None) -> Path:
        """Put the library below ``root`` as a driver package does: a versioned file and its SONAME link."""
        folder = root / "usr/lib/x86_64-linux-gnu"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"libnvidia-ml.so.{version or self.driver_version}"
        # A new file each time, renamed into place: writing into one that a process has mapped would crash it.
        fresh = file.with_suffix(".dpkg-new")
        shutil.copy2(self.library, fresh)
        fresh.rename(file)
        link = folder / LIBRARY_NAME
        link.unlink(missing_ok=True)
        link.symlink_to(file.name)
        return file

    # The driver

    @property
    def driver_version(self) -> str:
        """Version of the loaded kernel module."""
        return str(self.state.kernel_version.decode())

    def set_driver(self, version: str) -> None:
        """Upgrade library and kernel module: sessions that are open answer LIB_RM_VERSION_MISMATCH from now on."""
        with self._exclusive():
            self.state.library_version = self.state.kernel_version = version.encode()
            self.state.driver_epoch += 1
            self.state.driver_loaded = 1
        self._write_kernel_files()

    def set_library_version(self, version: str) -> None:
        """Replace the library only: whoever initialises from now on gets LIB_RM_VERSION_MISMATCH."""
        with self._exclusive():
            self.state.library_version = version.encode()

    def unload(self) -> None:
        """Unload the kernel module: every call answers DRIVER_NOT_LOADED."""
        with self._exclusive():
            self.state.driver_loaded = 0
            self.state.driver_epoch += 1
        kernel.write_driver_version(self.proc, None)

    def load(self) -> None:
        """Load the kernel module again."""
        with self._exclusive():
            self.state.driver_loaded = 1
        self._write_kernel_files()

    # The GPUs; ``gpu`` is the position in the machine, which the NVML index follows when all are attached

    def set(self, gpu: int, **fields: Any) -> None:
        """Change fields of ``struct gpu``; None stands for "not supported"."""
        state = self.state.gpus[gpu]
        with self._exclusive():
            for name, value in fields.items():
                if not hasattr(state, name):
                    raise AttributeError(f"struct gpu has no field {name}")
                if value is None:
                    value = b"" if isinstance(getattr(state, name), bytes) else layout.UNSUPPORTED
                setattr(state, name, value.encode() if isinstance(value, str) else value)

    def set_nvlink(self, gpu: int, link: int, *, active: bool) -> None:
        """Bring one link up or down."""
        with self._exclusive():
            self.state.gpus[gpu].nvlink_states[link] = int(active)

    def set_fabric(self, gpu: int, cluster_uuid: str | None, clique_id: int, **fields: int) -> None:
        """Register the GPU in a fabric; further ``fabric_…`` fields as in ``struct gpu``."""
        raw = uuids.UUID(cluster_uuid).bytes if cluster_uuid else bytes(16)
        self.set(gpu, fabric_state=3, fabric_status=0, fabric_clique_id=clique_id, **fields)
        with self._exclusive():
            self.state.gpus[gpu].fabric_cluster_uuid[:] = list(raw)

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus: its calls answer GPU_IS_LOST."""
        self.set(gpu, lost=1)

    def restore(self, gpu: int) -> None:
        """The lost GPU is back."""
        self.set(gpu, lost=0)

    def detach(self, gpu: int) -> None:
        """Take the GPU out; sessions opened from now on do not see it and indexes behind it move up."""
        self.set(gpu, attached=0)
        self._write_kernel_files()

    def attach(self, gpu: int) -> None:
        """Plug the GPU in; sessions opened from now on see it."""
        self.set(gpu, attached=1)
        self._write_kernel_files()

    def set_count(self, count: int) -> None:
        """Attach the first ``count`` GPUs and detach the others."""
        with self._exclusive():
            for index in range(len(self.machine.gpus)):
                self.state.gpus[index].attached = int(index < count)
        self._write_kernel_files()

    def event(self, gpu: int, type_: int, data: int = 0, gi: int = WHOLE_GPU, ci: int = WHOLE_GPU) -> None:
        """Deliver an event, e.g. type 8 (XID) with the XID as data, to every process that waits for it."""
        with self._exclusive():
            slot = self.state.events[self.state.event_count % layout.MAX_EVENTS]
            slot.gpu, slot.gpu_instance, slot.compute_instance = gpu, gi, ci
            slot.type, slot.data = type_, data
            self.state.event_count += 1

    # MIG

    def set_mig(self, gpu: int, *, enabled: bool) -> None:
        """Switch MIG mode, as after a reset; existing instances go."""
        self.set(gpu, mig_current=int(enabled), mig_pending=int(enabled))
        if not enabled:
            with self._exclusive():
                for instance in self.state.gpus[gpu].gpu_instances:
                    instance.used = 0

    def add_mig(self, gpu: int, profile: str, start: int) -> str:
        """Create a MIG device of a profile at a memory slice, as an administrator would; returns its UUID."""
        state = self.state.gpus[gpu]
        slot, chosen = next(
            (slot, entry)
            for slot, entry in enumerate(state.profiles[: state.profile_count])
            if entry.name.decode() == profile
        )
        if start not in chosen.placement_starts[: chosen.placement_count]:
            raise ValueError(f"profile {profile} can't start at slice {start}")
        size = chosen.placement_size
        instance_id = state.mig_memory_slices // size - 1 + start // size
        with self._exclusive():
            self.state.uuid_serial += 1
            identity = f"MIG-{uuids.uuid5(uuids.NAMESPACE_OID, f'{gpu}/{instance_id}/{self.state.uuid_serial}')}"
            instance = state.gpu_instances[instance_id]
            instance.id, instance.profile_slot, instance.start, instance.size = instance_id, slot, start, size
            compute = instance.compute_instances[0]
            compute.id, compute.start, compute.slices = 0, 0, chosen.slices
            compute.profile = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[chosen.slices]
            compute.multiprocessors = chosen.multiprocessors
            compute.uuid = identity.encode()
            compute.used = instance.used = 1
        return identity

    # Injections

    def fault(self, function: str, gpu: int | None = None, error: str | int = "UNKNOWN", times: int = 0) -> int:
        """Let a function fail, for one GPU or for all, ``times`` times or until removed (0).

        ``function`` is the name of the C function; without ``_vN`` it stands for all its versions. Returns a number for
        :meth:`remove` and :meth:`hits`.
        """
        code = ERRORS[error] if isinstance(error, str) else error
        return self._inject(function, gpu, error=code, remaining=times)

    def delay(self, function: str, gpu: int | None, seconds: float, times: int = 0) -> int:
        """Let a function take that long before it answers; removing the delay lets a waiting call go on at once."""
        return self._inject(function, gpu, delay_ms=max(1, int(seconds * 1000)), remaining=times)

    def count(self, function: str, gpu: int | None = None) -> int:
        """Count the calls of a function from now on; read them with :meth:`hits`."""
        return self._inject(function, gpu)

    def hits(self, injection: int) -> int:
        """How many calls an injection has met."""
        return int(self.state.injections[injection].hits)

    def remove(self, injection: int) -> None:
        """Take one injection back."""
        self.state.injections[injection].used = 0

    def heal(self) -> None:
        """Take every injection back and restore every lost GPU."""
        for injection in self.state.injections:
            injection.used = 0
        for gpu in self.state.gpus:
            gpu.lost = 0

    def _inject(self, function: str, gpu: int | None, **values: int) -> int:
        with self._exclusive():
            number, slot = next((number, slot) for number, slot in enumerate(self.state.injections) if not slot.used)
            slot.function = function.encode()
            slot.gpu = layout.NO_GPU if gpu is None else gpu
            slot.error = slot.remaining = slot.delay_ms = slot.hits = 0
            for name, value in values.items():
                setattr(slot, name, value)
            slot.used = 1
            return number

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    # Building

    def _fill(self, driver_version: str | None, mig: bool) -> None:
        state, machine = self.state, self.machine
        major, minor = machine.cuda_driver_version or (0, 0)
        state.layout_version = layout.LAYOUT_VERSION
        state.layout_size = layout.SIZE
        state.driver_loaded = 1
        state.cuda_version = major * 1000 + minor * 10
        state.library_version = state.kernel_version = (driver_version or machine.driver_version or "").encode()
        for gpu in machine.gpus:
            fill_gpu(state.gpus[gpu.index], gpu, self._layout, mig)
        state.magic = layout.STATE_MAGIC

    def _write_kernel_files(self) -> None:
        kernel.write_driver_version(self.proc, self.driver_version if self.state.driver_loaded else None)
        attached = [gpu for gpu in self.machine.gpus if self.state.gpus[gpu.index].attached]
        shutil.rmtree(self.sysfs, ignore_errors=True)
        kernel.write_sysfs(self.sysfs, self._layout, [self._layout.gpus[gpu.index] for gpu in attached])
        if self.state.driver_loaded:
            kernel.write_gpu_information(self.proc, [gpu.pci_bus_id or "" for gpu in attached])
