"""Device nodes: those of the driver and those of one GPU.

A node is described completely (numbers, mode, group), so that the runtime need not look at the host again. The
container's processes get the node's group when the node is not open to everybody (/dev/dri: groups video and render).

The nodes of a MIG device, /dev/nvidia-caps/nvidia-capN for its GPU and compute instance, belong here, too, beside
`gpu_nodes`, when MIG devices are prepared.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dra_driver.cdi.discovery.tree import Lstat, Watch, entries, is_there, link_target, subdirectories
from dra_driver.cdi.spec import DeviceNode
from dra_driver.inventory.driver_root import DriverRoot

CONTROL_NODES: Final = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools", "/dev/nvidia-uvm", "/dev/nvidiactl")
"""Nodes that belong to the driver as a whole."""

_OPEN_TO_ALL: Final = 0o006


@dataclass(frozen=True, slots=True)
class Nodes:
    """Found nodes.

    Attributes:
        nodes: as found.
        gids: groups a process needs to open them, sorted.
        links: ``(target, path)`` of links below /dev/dri/by-path.
    """

    nodes: tuple[DeviceNode, ...]
    gids: tuple[int, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    def __contains__(self, path: object) -> bool:
        return any(node.path == path for node in self.nodes)


class NodeReader:
    """Reads device nodes below the dev root and records them in ``watch``."""

    def __init__(self, root: DriverRoot, watch: Watch, lstat: Lstat = os.lstat) -> None:
        self._here = str(root.dev_root).rstrip("/")
        self._host = str(root.host_dev_root).rstrip("/")
        self._watch = watch
        self._lstat = lstat

    def read(self, path: str) -> DeviceNode | None:
        """The character device ``path`` (as in a container), None when there is none."""
        here = self._here + path
        if not self._watch.add(is_there, here):
            return None
        state = self._watch.add(self._state, here)
        if not isinstance(state, tuple):
            return None
        mode, number, gid = state
        if not stat.S_ISCHR(mode):
            return None
        return DeviceNode(
            path=path,
            host_path=self._host + path if self._host else "",
            major=os.major(number),
            minor=os.minor(number),
            # Zero and None are the same to the toolkit: the runtime then decides.
            file_mode=stat.S_IMODE(mode) or None,
            permissions="rwm",
            gid=gid or None,
        )

    def _state(self, here: str) -> tuple[int, int, int] | None:
        """Mode, device number and group; None when the node vanished."""
        try:
            found = self._lstat(here)
        except OSError:
            return None
        return found.st_mode, found.st_rdev, found.st_gid

    def link(self, path: str) -> str | None:
        """Text of the symbolic link ``path``, None when there is none."""
        target = self._watch.add(link_target, self._here + path)
        return target if isinstance(target, str) else None


def control_nodes(reader: NodeReader) -> Nodes:
    """The driver's own nodes that exist."""
    return _nodes(node for path in CONTROL_NODES if (node := reader.read(path)) is not None)


def gpu_nodes(reader: NodeReader, watch: Watch, minor: int, pci_bus_id: str | None, sysfs: str) -> Nodes:
    """/dev/nvidia<minor> and the DRM nodes that sysfs lists for the PCI device, those that exist.

    Args:
        pci_bus_id: ``dddd:bb:dd.f``; without it there are no DRM nodes.
        sysfs: where this process sees /sys.
    """
    drm = entries_of(watch, f"{sysfs}/bus/pci/devices/{pci_bus_id}/drm") if pci_bus_id else ()
    paths = (f"/dev/nvidia{minor}", *(f"/dev/dri/{name}" for name in drm))
    found = _nodes(node for path in paths if (node := reader.read(path)) is not None)
    links = []
    for kind in ("card", "render") if drm else ():
        link = f"/dev/dri/by-path/pci-{pci_bus_id}-{kind}"
        target = reader.link(link)
        if target is not None and os.path.normpath(f"/dev/dri/by-path/{target}") in found:
            links.append((target, link))
    return Nodes(found.nodes, found.gids, tuple(links))


def entries_of(watch: Watch, directory: str) -> tuple[str, ...]:
    """Sorted names of the directories in a sysfs directory; noticed are new ones, and those that go."""
    watch.add(subdirectories, directory)
    names = entries(directory)
    for name in names:
        watch.add(is_there, f"{directory}/{name}")
    return names


def _nodes(found: Iterable[DeviceNode]) -> Nodes:
    nodes = tuple(found)
    gids = {node.gid for node in nodes if node.gid and (node.file_mode or _OPEN_TO_ALL) & _OPEN_TO_ALL != _OPEN_TO_ALL}
    return Nodes(nodes, tuple(sorted(gids)))
