"""Puts a machine together: session, GPUs side by side, and what to say when the driver does not answer.

Every look is complete: it sees new GPUs, lost ones, another driver, no driver, another MIG mode. Nothing about
hardware raises. The session stays open between looks, because opening one can take seconds; it starts again when its
surroundings have changed (``session``), when NVML says that it is over, and now and then while a GPU is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dra_driver.errors import EnvironmentFault
from dra_driver.inventory import pci
from dra_driver.inventory.driver_root import DriverRoot, no_driver
from dra_driver.inventory.hardware import DriverState, Gpu, Machine, Problem
from dra_driver.inventory.nvml.calls import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    OPERATING_SYSTEM,
    SESSION_OVER,
    NvmlFailure,
)
from dra_driver.inventory.nvml.gpu import read_gpu
from dra_driver.inventory.nvml.patience import Attempt, NoAnswer, Patience, wait_for
from dra_driver.inventory.nvml.reading import Reading
from dra_driver.inventory.nvml.session import NvmlSession

GPU_PATIENCE_SECONDS = 20.0
"""Looking up a handle has been seen to take ten seconds on a busy machine."""

DRIVER_PATIENCE_SECONDS = 60.0
"""nvmlInit initialises GPUs one by one when no persistence daemon runs."""

CLOSE_PATIENCE_SECONDS = 2.0
"""A daemon that stops has other things to do in its grace period."""

LOST_RETRY_SECONDS = 300.0
"""A GPU that was lost may come back after a reset, but only a new session sees that."""

_DRIVER = "driver"
_STATES = {
    LIBRARY_NOT_FOUND: DriverState.NO_LIBRARY,
    DRIVER_NOT_LOADED: DriverState.NOT_LOADED,
    LIB_RM_VERSION_MISMATCH: DriverState.VERSION_MISMATCH,
    NO_PERMISSION: DriverState.NO_PERMISSION,
    OPERATING_SYSTEM: DriverState.NO_PERMISSION,
}


@dataclass(frozen=True, slots=True)
class _Driver:
    """What the session tells about the driver as a whole."""

    fresh: bool
    version: str | None
    cuda_version: tuple[int, int] | None
    gpu_count: int
    problems: tuple[Problem, ...]
    session_over: bool


@dataclass(frozen=True, slots=True)
class _Look:
    """What came of asking one GPU: the GPU, or why there is none."""

    gpu: Gpu | None
    problem: Problem | None
    lost: bool = False
    session_over: bool = False


class NvmlInventory:
    """The inventory of this node. Blocking: call it in a thread. Safe for concurrent use.

    One at a time per process, since pynvml knows one library: close it before another takes over. A driver root that
    may move needs no second inventory, give the function that finds it.

    Args:
        driver_root: where the driver's files are, or a function that finds out anew at each look (a driver container
            may start after us); it may raise :class:`EnvironmentFault`.
        sysfs, proc: where these file systems are mounted.
        gpu_patience, driver_patience: seconds until a silent GPU, or the driver, is given up for this look.
        wait, clock: how to wait for a call, and seconds on a clock that never jumps.
    """

    def __init__(
        self,
        driver_root: DriverRoot | Callable[[], DriverRoot] = DriverRoot.probe,
        sysfs: str | Path = "/sys",
        proc: str | Path = "/proc",
        *,
        gpu_patience: float = GPU_PATIENCE_SECONDS,
        driver_patience: float = DRIVER_PATIENCE_SECONDS,
        lost_retry: float = LOST_RETRY_SECONDS,
        wait: Callable[[Attempt[object], float], bool] = wait_for,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configured_root = driver_root
        self._sysfs = Path(sysfs)
        self._gpu_patience = gpu_patience
        self._driver_patience = driver_patience
        self._lost_retry = lost_retry
        self._patience = Patience(wait)
        self._clock = clock
        self._one_look = threading.Lock()
        self._seen: dict[int, str] = {}
        self._seen_count = 0
        self._retry_lost_at = 0.0
        self.session = NvmlSession(sysfs=self._sysfs, proc=Path(proc))
        self.driver_root: DriverRoot | None = driver_root if isinstance(driver_root, DriverRoot) else None

    def discover(self) -> Machine:
        """Look at the hardware. Never raises for its state: see :attr:`Machine.state` and the problems."""
        with self._one_look:
            try:
                configured = self._configured_root
                root = configured if isinstance(configured, DriverRoot) else configured()
                library = root.libnvidia_ml()
                if library is None:
                    raise no_driver((root,))
            except EnvironmentFault as fault:
                self._end_session()
                return _without_driver(DriverState.NO_LIBRARY, fault.message, fault.hint or "")
            self.driver_root = root
            return self._look_at_machine(library)

    def close(self) -> None:
        """End the NVML session, so that the kernel module can be unloaded; the next look opens a new one.

        Takes seconds at most: while a look hangs in the driver the session stays as it is, and ends with the process.
        """
        if not self._one_look.acquire(timeout=CLOSE_PATIENCE_SECONDS):
            return
        try:
            self._end_session(min(self._driver_patience, CLOSE_PATIENCE_SECONDS))
        finally:
            self._one_look.release()

    def _look_at_machine(self, library: Path) -> Machine:
        machine = self._look_once(library)
        if machine is None:  # the session was over or a GPU lost in it: once more with a new one
            self._end_session()
            machine = self._look_once(library, last=True)
        if machine is None:
            return _without_driver(DriverState.FAILED, "the NVIDIA driver ends every session at once", "")
        return machine

    def _look_once(self, library: Path, *, last: bool = False) -> Machine | None:
        """The machine; None when a new session would tell more."""
        try:
            driver = self._ask_driver(library)
        except NoAnswer:
            return _without_driver(
                DriverState.FAILED,
                f"the NVIDIA driver has not answered for {self._driver_patience:g} s",
                "look for NVRM and XID messages in the kernel log; the node may need a reboot",
            )
        except NvmlFailure as failure:
            if failure.code in SESSION_OVER and not last:
                return None
            return self._explain(failure)
        except EnvironmentFault as fault:
            return _without_driver(DriverState.NO_LIBRARY, fault.message, fault.hint or "")
        looks = self._look_at_gpus(driver.gpu_count)
        if not (driver.fresh or last) and self._new_session_helps(driver, tuple(looks.values())):
            return None
        return self._machine(driver, looks)

    def _new_session_helps(self, driver: _Driver, looks: tuple[_Look, ...]) -> bool:
        if self._patience.stuck():  # a call is still inside the library
            return False
        if driver.session_over or any(look.session_over for look in looks):
            return True
        if any(look.lost for look in looks) and self._clock() >= self._retry_lost_at:
            self._retry_lost_at = self._clock() + self._lost_retry
            return True
        return False

    def _ask_driver(self, library: Path) -> _Driver:
        attempt = self._patience.start(_DRIVER, lambda: self._open(library))
        return self._patience.finish(attempt, time.monotonic() + self._driver_patience)

    def _open(self, library: Path) -> _Driver:
        fresh = False if self._patience.stuck() and self.session.is_open else self.session.open(library)
        reading = Reading(_DRIVER, of_gpu=False)
        count = int(reading.required("nvmlDeviceGetCount"))
        version = reading.optional("driverVersion", "nvmlSystemGetDriverVersion")
        cuda = reading.optional("cudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
        return _Driver(
            fresh=fresh,
            version=version or None,
            cuda_version=(int(cuda) // 1000, int(cuda) % 1000 // 10) if cuda else None,
            gpu_count=count,
            problems=tuple(reading.problems),
            session_over=reading.session_over,
        )

    def _look_at_gpus(self, count: int) -> dict[int, _Look]:
        """All GPUs side by side, so that a slow one costs no other its time."""
        if count != self._seen_count:  # indexes may have moved
            self._seen.clear()
            self._seen_count = count
        deadline = time.monotonic() + self._gpu_patience
        attempts = {index: self._patience.start(index, partial(self._look_at_gpu, index)) for index in range(count)}
        looks = {}
        for index, attempt in attempts.items():
            try:
                looks[index] = self._patience.finish(attempt, deadline)
            except NoAnswer:
                looks[index] = self._silent(index)
        return looks

    def _look_at_gpu(self, index: int) -> _Look:
        reading = Reading(self._name_of(index))
        try:
            handle = reading.required("nvmlDeviceGetHandleByIndex", index)
            gpu = read_gpu(reading, handle, index, self._sysfs)
        except NvmlFailure as failure:
            lost = failure.code == GPU_IS_LOST
            cause = f"GPU at NVML index {index} can't be used: {failure.message}"
            problem = Problem(reading.subject, "device", cause, failure.hint or "")
            return _Look(None, problem, lost=lost, session_over=reading.session_over)
        self.session.remember(gpu.uuid, handle)
        self._seen[index] = reading.subject
        return _Look(gpu, None, session_over=reading.session_over)

    def _silent(self, index: int) -> _Look:
        cause = f"GPU at NVML index {index} does not answer (waited {self._gpu_patience:g} s)"
        hint = "look for XID messages in the kernel log; reset the GPU or reboot the node"
        return _Look(None, Problem(self._name_of(index), "device", cause, hint))

    def _name_of(self, index: int) -> str:
        """The name under which the GPU at that index was last published, if it ever was."""
        return self._seen.get(index, f"GPU index {index}")

    def _machine(self, driver: _Driver, looks: dict[int, _Look]) -> Machine:
        problems = list(driver.problems)
        gpus: list[Gpu] = []
        for look in looks.values():
            if look.problem is not None:
                problems.append(look.problem)
            elif look.gpu is not None:
                twin = next((gpu for gpu in gpus if gpu.minor == look.gpu.minor or gpu.uuid == look.gpu.uuid), None)
                if twin is None:
                    gpus.append(look.gpu)
                else:
                    problems.append(_same_identity(look.gpu, twin))
        machine = Machine(
            state=DriverState.READY,
            source="nvml",
            driver_version=driver.version,
            cuda_driver_version=driver.cuda_version,
            gpus=tuple(gpus),
            problems=tuple(problems),
        )
        return machine if gpus else self._explain_empty(machine, len(looks))

    def _explain_empty(self, machine: Machine, listed: int) -> Machine:
        version = machine.driver_version or "of unknown version"
        if listed:
            return replace(
                machine,
                reason=f"none of the {listed} GPUs of this node can be used",
                hint="the problems of the single GPUs tell why",
            )
        on_bus = pci.nvidia_devices(self._sysfs)
        if on_bus:
            return replace(
                machine,
                reason=f"driver {version} lists no GPU, but the PCI bus has {', '.join(on_bus)}",
                hint="look for NVRM messages in the kernel log, and whether another driver (vfio-pci) holds the GPUs",
            )
        return replace(machine, reason=f"driver {version} lists no GPU and the PCI bus has none")

    def _explain(self, failure: NvmlFailure) -> Machine:
        state = _STATES.get(failure.code, DriverState.FAILED)
        reason = f"the NVIDIA driver can't be used: {failure.message}"
        loaded = self.session.kernel_version()
        if state is DriverState.VERSION_MISMATCH and loaded is not None:
            reason += f"; the loaded kernel module is {loaded}"
        return _without_driver(state, reason, failure.hint or "")

    def _end_session(self, patience: float | None = None) -> None:
        """Unless a call is stuck inside the library: ending the session under it could crash the process."""
        if self._patience.stuck():
            return
        attempt = self._patience.start(_DRIVER, self.session.close)
        try:
            self._patience.finish(attempt, time.monotonic() + (patience or self._driver_patience))
        except NoAnswer:
            return  # the next look tells that the driver does not answer


def _without_driver(state: DriverState, reason: str, hint: str) -> Machine:
    return Machine(state=state, source="nvml", reason=reason, hint=hint)


def _same_identity(gpu: Gpu, twin: Gpu) -> Problem:
    return Problem(
        f"GPU index {gpu.index}",
        "device",
        f"has the minor number {gpu.minor} and UUID {gpu.uuid}, and GPU index {twin.index} has {twin.minor} and "
        f"{twin.uuid}: one of them is told twice",
        "restart the node's NVIDIA driver",
    )
