"""Removing every container, control group and mount of a run, also when its containerd is already dead.

A killed containerd leaves its shims and the containers' processes running and their filesystems mounted. They are
found by what only this run has: the containerd socket on the shim's command line, the kubelet's own root control
group, and mount points below the run's directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cgroup_name(directory: Path) -> str:
    """Root control group of the run's kubelet and containers."""
    return f"dra-{directory.name}"


def cgroups(directory: Path) -> list[Path]:
    """The run's root control group in every hierarchy of this machine (one for version 2, several for version 1)."""
    name = cgroup_name(directory)
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS / name]
    return [hierarchy / name for hierarchy in _CGROUPS.iterdir() if hierarchy.is_dir() and not hierarchy.is_symlink()]


def create_cgroups(directory: Path) -> None:
    """Create the root control group: the kubelet refuses to start when the one it is told does not exist."""
    for group in cgroups(directory):
        group.mkdir(exist_ok=True)
        cpuset = group / "cpuset.cpus"
        if cpuset.exists() and not cpuset.read_text().strip():  # version 1: an empty cpuset takes no processes
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())


def remove_all(directory: Path) -> None:
    """Kill the run's shims and containers, unmount everything below its directory, remove its control groups."""
    for pid in _shims(f"{directory}/run/containerd.sock"):
        _kill(pid)
    kill_all(directory)
    unmount_below(directory)
    for group in cgroups(directory):
        for folder, _, _ in os.walk(group, topdown=False):
            _remove_group(Path(folder))


def kill_all(directory: Path) -> None:
    """Kill every process in the run's containers, as a power failure does; returns when they are gone."""
    deadline = time.monotonic() + 20
    while (left := list(_members(directory))) and time.monotonic() < deadline:
        for pid in left:
            _kill(pid)
        time.sleep(0.05)


def unmount_below(directory: Path) -> None:
    """Lazily unmount every mount point below ``directory``, innermost first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([point for point in points if point.startswith(f"{directory}/")]):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _remove_group(folder: Path) -> None:
    for _ in range(100):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # busy until the kernel has reaped the last member
            time.sleep(0.02)
        else:
            return


def _shims(socket: str) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if arguments[0].endswith("containerd-shim-runc-v2") and socket in arguments:
            yield int(entry.name)


def _members(directory: Path) -> Iterator[int]:
    for group in cgroups(directory):
        for members in group.rglob("cgroup.procs"):
            try:
                yield from map(int, members.read_text().split())
            except OSError:
                continue


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
