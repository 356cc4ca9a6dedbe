"""Where the NVIDIA driver's files are, as this process and as the container runtime on the host see them.

The driver is installed in the host's own ``/`` (packages), in a container's root that the host sees under
``/run/nvidia/driver`` (GPU operator), or under ``/home/kubernetes/bin/nvidia`` (GKE). A daemon in a container sees
the host's files below a mount, while the CDI specs it writes are read by the runtime on the host: hence two paths for
one root.

A root counts when it holds ``libnvidia-ml.so.1`` for this machine. Symbolic links are followed inside the root, as a
process that is chrooted there would, because an absolute link (Debian's alternatives) must not lead into this
container's own files.
"""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dra_driver.errors import EnvironmentFault

NVML_LIBRARY = "libnvidia-ml.so.1"

LIBRARY_DIRS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib64/nvidia/current",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/lib",
    "lib",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
)
"""Folders below the root that may hold the driver's libraries, in the order in which NVIDIA's own tools look."""

BINARY_DIRS = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "run/current-system/sw/bin")
"""Folders below the root that may hold nvidia-smi."""

KNOWN_HOST_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""Host paths of driver roots: driver packages, the GPU operator's driver container, GKE's installer."""

CONTAINER_MOUNT = "/driver-root"
"""Where the shipped DaemonSet mounts the host's files for this process."""

_LINK_LIMIT = 40  # as the kernel's own MAXSYMLINKS
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


@dataclass(frozen=True, slots=True, init=False)
class DriverRoot:
    """One driver root.

    Attributes:
        path: the root as this process sees it; everything is searched below it.
        host_path: the same root as the container runtime on the host sees it.
        dev_root: the folder whose ``dev/`` holds the GPU's device nodes, as this process sees it. By default the root
            itself when it has a ``dev/`` folder, else ``/``.
        host_dev_root: the same folder as seen on the host.
    """

    path: Path
    host_path: Path
    dev_root: Path
    host_dev_root: Path

    def __init__(
        self,
        path: str | Path = "/",
        *,
        host_path: str | Path | None = None,
        dev_root: str | Path | None = None,
        host_dev_root: str | Path | None = None,
    ) -> None:
        root = Path(path)
        host_root = Path(host_path) if host_path else root
        devices = Path(dev_root) if dev_root else root if (root / "dev").is_dir() else Path("/")
        host_devices = Path(host_dev_root or (host_root if devices == root else devices))
        object.__setattr__(self, "path", root)
        object.__setattr__(self, "host_path", host_root)
        object.__setattr__(self, "dev_root", devices)
        object.__setattr__(self, "host_dev_root", host_devices)

    @classmethod
    def probe(cls, candidates: Iterable[DriverRoot] | None = None) -> DriverRoot:
        """The first candidate (default: :func:`known_roots`) that holds the NVML library.

        Raises:
            EnvironmentFault: none does; says which roots and folders were searched and what to set.
        """
        searched = tuple(known_roots() if candidates is None else candidates)
        for root in searched:
            if root.libnvidia_ml() is not None:
                return root
        raise no_driver(searched)

    def libnvidia_ml(self) -> Path | None:
        """``libnvidia-ml.so.1`` with its links resolved, as this process sees it; None when the root has none for this
        machine (a 32-bit copy, or one for another processor, does not count)."""
        for folder in LIBRARY_DIRS:
            library = self.resolve(f"{folder}/{NVML_LIBRARY}")
            if library is not None and library.is_file() and _runs_here(library):
                return library
        return None

    def nvidia_smi(self) -> Path | None:
        """The ``nvidia-smi`` program, as this process sees it; None when there is none that can be executed."""
        for folder in BINARY_DIRS:
            program = self.resolve(f"{folder}/nvidia-smi")
            if program is not None and program.is_file() and os.access(program, os.X_OK):
                return program
        return None

    def resolve(self, relative: str | PurePosixPath) -> Path | None:
        """A path below the root with every symbolic link followed inside the root; None when it does not exist.

        ``..`` never leaves the root and an absolute link starts again at the root, as in a chroot.
        """
        pending = [part for part in reversed(PurePosixPath(relative).parts) if part != "/"]
        resolved: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                if resolved:
                    resolved.pop()
                continue
            here = self.path.joinpath(*resolved, part)
            try:
                mode = here.lstat().st_mode
                target = os.readlink(here) if stat.S_ISLNK(mode) else None
            except OSError:  # missing, a file used as a folder, or not readable: all mean "not there" for a search
                return None
            if target is None:
                resolved.append(part)
                continue
            links += 1
            if links > _LINK_LIMIT:
                return None
            target_path = PurePosixPath(target)
            if target_path.is_absolute():
                resolved.clear()
            pending.extend(step for step in reversed(target_path.parts) if step != "/")
        return self.path.joinpath(*resolved)

    def on_host(self, path: Path) -> Path:
        """A path of this process as the host sees it: below the driver root, or a device node below the dev root.

        Other paths are returned unchanged.
        """
        for here, there in ((self.path, self.host_path), (self.dev_root, self.host_dev_root)):
            if path.is_relative_to(here):
                return there / path.relative_to(here)
        return path


def known_roots(mount: str | Path = CONTAINER_MOUNT) -> tuple[DriverRoot, ...]:
    """The roots that are searched when none is configured.

    Below ``mount`` first, where a DaemonSet mounts the host's ``/``, then in place, for a
    daemon that runs on the host. A root without ``dev/`` (GKE's) has its device nodes in the host's ``/dev``, which a
    daemon in a container sees below the mount; its own ``/dev`` is another.
    """
    inside = Path(mount)
    mounted = [_mounted_root(inside, host) for host in KNOWN_HOST_ROOTS] if inside.is_dir() else []
    return (*mounted, *(DriverRoot(host) for host in KNOWN_HOST_ROOTS))


def _mounted_root(mount: Path, host: str) -> DriverRoot:
    path = mount.joinpath(host.lstrip("/"))
    if (path / "dev").is_dir():
        return DriverRoot(path, host_path=host)
    return DriverRoot(path, host_path=host, dev_root=mount, host_dev_root="/")


def no_driver(roots: Sequence[DriverRoot]) -> EnvironmentFault:
    """What to tell when no root holds the library."""
    places = []
    for root in roots:
        seen = "" if root.host_path == root.path else f" (on the host: {root.host_path})"
        missing = "" if root.path.is_dir() else ", which does not exist"
        places.append(f"{root.path}{seen}{missing}")
    return EnvironmentFault(
        f"no NVIDIA driver found: {NVML_LIBRARY} for {platform.machine()} is in none of "
        f"{', '.join(LIBRARY_DIRS)} below {'; '.join(places)}",
        hint="install the NVIDIA driver, or set --driver-root (DRA_DRIVER_DRIVER_ROOT) to the folder where this process"
        " sees the driver's root, and --host-driver-root to its path on the host, e.g. /run/nvidia/driver with the GPU"
        " operator or /home/kubernetes/bin/nvidia on GKE",
    )


def _runs_here(library: Path) -> bool:
    """False for an ELF file of another class or machine: multilib systems keep a 32-bit copy in /usr/lib."""
    try:
        with library.open("rb") as file:
            header = file.read(20)
    except OSError:
        return False
    wanted = _ELF_MACHINES.get(platform.machine())
    if len(header) < 20 or header[:4] != b"\x7fELF" or wanted is None:
        return True  # not an ELF file, or a machine unknown here: let the loader say what is wrong
    return header[4] == 2 and int.from_bytes(header[18:20], "little" if header[5] == 1 else "big") == wanted
