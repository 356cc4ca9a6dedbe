"""The driver's libraries: which directories hold them and which files belong to a container.

Everything hangs on the driver version that NVML reports, because that is the version of the loaded kernel module:
libraries of another version can't talk to it. When the root has only another version, the driver was upgraded under
us, and a fault that says so is better than a container that fails in its own ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dra_driver.cdi.discovery.ldcache import libraries_64_bit
from dra_driver.cdi.discovery.tree import Tree
from dra_driver.errors import EnvironmentFault

SEARCHED: Final = (
    "/",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
)
"""Where the toolkit looks for libraries before it asks the loader's cache."""

_NVVM_OF_OLD_NAME: Final = "libnvidia-nvvm70.so.*"


@dataclass(frozen=True, slots=True)
class DriverLibraries:
    """The libraries of one driver version.

    Attributes:
        version: as NVML prints it.
        directories: those that hold a ``lib*.so.<version>``, in the order of the search.
        files: libraries to mount, links followed: ``*.so.<version>`` in the directories and their ``vdpau``, and NVVM.
    """

    version: str
    directories: tuple[str, ...]
    files: tuple[str, ...]


def driver_libraries(tree: Tree, version: str) -> DriverLibraries:
    """Find the libraries of driver ``version``.

    Raises:
        EnvironmentFault: neither libcuda nor libnvidia-ml of this version is under the root.
    """
    if not (locate(tree, f"libcuda.so.{version}") or locate(tree, f"libnvidia-ml.so.{version}")):
        raise _other_version(tree, version)
    directories = _unique(path.rpartition("/")[0] for path in locate(tree, f"lib*.so.{version}"))
    searched = (*directories, *(f"{directory}/vdpau" for directory in directories))
    files = [*_resolved(tree, searched, f"*.so.{version}"), *_resolved(tree, directories, _NVVM_OF_OLD_NAME)]
    return DriverLibraries(version, directories, _unique(files))


def locate(tree: Tree, pattern: str) -> tuple[str, ...]:
    """Libraries whose name fits ``pattern``, links followed: in the usual directories, else in the loader's cache."""
    return _resolved(tree, SEARCHED, pattern) or _from_loader_cache(tree, pattern)


def _resolved(tree: Tree, directories: tuple[str, ...], pattern: str) -> tuple[str, ...]:
    found = (tree.resolved(path) for directory in directories for path in tree.find(directory, pattern))
    return _unique(path for path in found if path is not None)


def _from_loader_cache(tree: Tree, pattern: str) -> tuple[str, ...]:
    """The cache names SONAME links; the pattern may fit a link's name or the name of the file behind it."""
    data = tree.read("/etc/ld.so.cache")
    matches = []
    for path in libraries_64_bit(data) if data else ():
        target = tree.resolved(path)
        if target is not None and any(fnmatchcase(p.rpartition("/")[2], pattern) for p in (path, target)):
            # Looked up once more so that the directory is watched.
            directory, _, name = path.rpartition("/")
            tree.find(directory, name)
            matches.append(target)
    return _unique(matches)


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def _other_version(tree: Tree, version: str) -> EnvironmentFault:
    present = locate(tree, "libcuda.so.*.*") or locate(tree, "libnvidia-ml.so.*.*")
    where = tree.host("/")
    if not present:
        return EnvironmentFault(
            f"driver files are missing: no libcuda.so.{version} under the driver root {where}",
            hint="wait until the driver's installation has finished, or check the configured driver root",
        )
    installed = present[0].rpartition(".so.")[2]
    return EnvironmentFault(
        f"the loaded NVIDIA driver is {version}, but the libraries under the driver root {where} are {installed}",
        hint="the driver was upgraded while its old kernel module is still in use: reboot the node, or unload and "
        "reload the module; if the module is new already, this passes at the next discovery",
    )
