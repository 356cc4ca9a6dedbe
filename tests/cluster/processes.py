"""Starting, watching and ending the processes of one run, and sweeping up what a killed earlier run left.

A run lives in one short directory (unix socket paths have 107 bytes) below the temporary directory and names its
owner. Each process has a log and a pid file with its start time, so that a recycled pid is never signalled. When the
owner of a run is gone, the next run ends its processes and removes the directory.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import string
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.cluster import containers, network

_PORTS = range(20000, 30000)
"""Below the kernel's ephemeral range, so that no outgoing connection of this machine takes a port between choice and
bind.
"""


class StartFailed(Exception):
    """A process ended, or was not ready in time; ``str()`` has the end of its log."""


def base_directory() -> Path:
    """Where all runs of this user live."""
    directory = Path(tempfile.gettempdir()) / f"dra-{os.geteuid()}"
    directory.mkdir(mode=0o755, exist_ok=True)
    return directory


class Port:
    """A TCP port of the loopback interface, reserved against other test processes until `release`."""

    def __init__(self) -> None:
        locks = base_directory() / "ports"
        locks.mkdir(exist_ok=True)
        candidates = random.SystemRandom().sample(_PORTS, 200)
        for candidate in candidates:
            handle = (locks / str(candidate)).open("w")
            if _lockable(handle) and _bindable(candidate):
                self.number, self._handle = candidate, handle
                return
            handle.close()
        raise StartFailed(f"none of 200 ports between {_PORTS.start} and {_PORTS.stop} is free")

    def release(self) -> None:
        self._handle.close()


def _lockable(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def start_time(pid: int) -> str | None:
    """The kernel's start time of ``pid`` in clock ticks, or None when there is no such (or only a zombie) process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Process:
    """One program of a run: started with its own session, log and pid file.

    It can also be attached to from another process through its pid file, which is how ``down`` ends what ``up``
    started.
    """

    def __init__(
        self, directory: Path, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = directory / "logs" / f"{name}.log"
        self._pid_file = directory / "run" / f"{name}.pid"
        self._env = dict(env) if env is not None else None
        self._cwd = directory
        self._child: subprocess.Popen[bytes] | None = None
        for needed in (self.log.parent, self._pid_file.parent):
            needed.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._pid_file.write_text(f"{self._child.pid} {start_time(self._child.pid)}")

    @property
    def pid(self) -> int | None:
        """Pid of the living process, None when it does not run."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        return _living(self._pid_file)

    def stop(self, grace: float = 20.0, first: signal.Signals = signal.SIGTERM) -> None:
        """Signal the process, and kill it when it still lives after ``grace`` seconds; returns when it is gone."""
        pid = self.pid
        if pid is not None:
            _end(pid, grace, first, reap=self._child.poll if self._child is not None else None)
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End the process as a crash would: SIGKILL."""
        self.stop(first=signal.SIGKILL)

    def log_end(self, lines: int = 25) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


def _living(pid_file: Path) -> int | None:
    try:
        pid, started = pid_file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if start_time(int(pid)) == started else None


def _end(pid: int, grace: float, first: signal.Signals, reap: Callable[[], object] | None) -> None:
    started = start_time(pid)
    if started is None:
        return
    for signum, patience in ((first, grace), (signal.SIGKILL, 30.0)):
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if reap is not None:
                reap()
            if start_time(pid) != started:
                return
            time.sleep(0.02)


def wait_until(
    what: str,
    ready: Callable[[], bool],
    *,
    timeout: float = 120.0,
    interval: float = 0.05,
    needs: Sequence[Process] = (),
    detail: Callable[[], str] | None = None,
) -> None:
    """Return once ``ready()`` is true.

    Raises:
        StartFailed: one of the ``needs`` processes ended, or ``timeout`` seconds passed; with logs and ``detail()``.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        for process in needs:
            if process.pid is None:
                raise StartFailed(f"{process.name} ended while waiting for {what}; its log ends:\n{process.log_end()}")
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {process.name}:\n{process.log_end(8)}" for process in needs)
            more = f"\n{detail()}" if detail is not None else ""
            raise StartFailed(f"{what}: not within {timeout:.0f} s{more}\n{logs}")
        time.sleep(interval)


def new_run_directory() -> Path:
    """A new directory for one run of this process; its path is at most a couple of dozen characters."""
    base = base_directory()
    sweep()
    while True:
        name = "".join(random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=4))
        directory = base / name
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        claim_ownership(directory)
        return directory


def claim_ownership(directory: Path) -> None:
    """Write down that this process owns the run: when it dies, `sweep` may end the run."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "owner").write_text(f"{os.getpid()} {start_time(os.getpid())}")


def disown(directory: Path) -> None:
    """Let the run outlive this process, until somebody ends it explicitly."""
    (directory / "owner").write_text("0 none")


def end_processes(directory: Path) -> None:
    """Kill every process that has a pid file in the run ``directory``."""
    for pid_file in sorted((directory / "run").glob("*.pid")):
        pid = _living(pid_file)
        if pid is not None:
            _end(pid, 0.0, signal.SIGKILL, reap=None)
        pid_file.unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """End the processes and containers of the run and remove its directory, whoever started it."""
    end_processes(directory)
    network.remove_all(directory)
    containers.remove_all(directory)
    shutil.rmtree(directory, ignore_errors=True)


def sweep() -> None:
    """Remove the runs whose owner died without ending them (a killed test process)."""
    for owner in base_directory().glob("*/owner"):
        try:
            text = owner.read_text()
        except OSError:
            continue
        if text and not text.startswith("0 ") and _living(owner) is None:
            remove(owner.parent)
