"""The discovery put together: edits for every container of this driver, and edits for one GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from dra_driver.cdi.discovery import graphics as graphics_files
from dra_driver.cdi.discovery.graphics import Graphics, Placed
from dra_driver.cdi.discovery.hooks import HookProgram
from dra_driver.cdi.discovery.installation import firmware, programs, sockets
from dra_driver.cdi.discovery.libraries import DriverLibraries, driver_libraries
from dra_driver.cdi.discovery.links import Link, library_links
from dra_driver.cdi.discovery.nodes import NodeReader, Nodes, control_nodes
from dra_driver.cdi.discovery.tree import Tree, Watch, text
from dra_driver.cdi.spec import ContainerEdits, DeviceNode, Hook, Mount

_FILE_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS: Final = ("nosuid", "nodev", "rbind", "rprivate", "noexec")

NOT_BY_OTHER_MEANS: Final = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps the NVIDIA container runtime, where it is installed, from injecting GPUs a second time by its own rules."""

_VOID_VOLUME: Final = Mount(
    host_path="/dev/null",
    container_path="/var/run/nvidia-container-devices/void",
    options=("ro", "nosuid", "nodev", "bind"),
)
"""The same for runtimes that take their GPUs from volume mounts."""


@dataclass(frozen=True, slots=True)
class CommonParts:
    """What the discovery found for the driver as a whole."""

    edits: ContainerEdits
    nodes: Nodes
    libraries: DriverLibraries


def common_edits(
    tree: Tree,
    watch: Watch,
    reader: NodeReader,
    version: str,
    hook: HookProgram | None,
    *,
    sysfs: str,
    kernel_release: str | None = None,
) -> CommonParts:
    """Edits for every container that gets a GPU of this driver.

    Raises:
        EnvironmentFault: the libraries of driver ``version`` are missing.
    """
    libraries = driver_libraries(tree, version)
    shown = graphics_files.graphics(tree, libraries)
    nodes = control_nodes(reader)
    custom = watch.add(text, f"{sysfs}/module/firmware_class/parameters/path")
    files = [
        *libraries.files,
        *firmware(
            tree,
            version,
            custom=custom if isinstance(custom, str) else "",
            kernel_release=kernel_release or os.uname().release,
        ),
        *programs(tree),
    ]
    mounts = [
        *(_mount(tree, Placed(file, file)) for file in files),
        *(_mount(tree, placed) for placed in shown.files),
        *(_mount(tree, Placed(file, file), _SOCKET_OPTIONS) for file in sockets(tree)),
        _VOID_VOLUME,
    ]
    if hook is None:
        hooks: tuple[Hook, ...] = ()
        links = (*shown.links, *library_links(tree, libraries.files, complete=True), *_platform_links(tree, shown))
        mounts += _as_mounts(tree, links, taken={mount.container_path for mount in mounts})
    else:
        hooks = _hooks(hook, shown.links, library_links(tree, libraries.files), libraries)
    edits = ContainerEdits(
        env=(f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(libraries.directories)}", NOT_BY_OTHER_MEANS),
        device_nodes=sorted_nodes(nodes.nodes),
        mounts=_sorted_mounts(mounts),
        hooks=hooks,
        additional_gids=nodes.gids,
    )
    return CommonParts(edits, nodes, libraries)


def gpu_edits(nodes: Nodes, hook: HookProgram | None, *, host_driver_root: str, uuid: str) -> ContainerEdits:
    """Edits for one GPU whose nodes were found."""
    hooks: list[Hook] = []
    if hook is not None:
        if nodes.links:
            hooks.append(hook.create_symlinks(*(f"{target}::{path}" for target, path in nodes.links)))
        hooks.append(hook.apply_cuda_memory_limits(host_driver_root, uuid))
    return ContainerEdits(device_nodes=sorted_nodes(nodes.nodes), hooks=tuple(hooks), additional_gids=nodes.gids)


def _hooks(
    hook: HookProgram, graphics_links: tuple[Link, ...], links: tuple[Link, ...], libraries: DriverLibraries
) -> tuple[Hook, ...]:
    """In the toolkit's order: links, then what the linker must know, then what the container may do."""
    folders = dict.fromkeys(
        file.rpartition("/")[0] for file in libraries.files if fnmatchcase(file.rpartition("/")[2], "lib?*.so*")
    )
    return (
        *((hook.create_symlinks(*graphics_links),) if graphics_links else ()),
        *((hook.create_symlinks(*links),) if links else ()),
        hook.enable_cuda_compat(libraries.version),
        *((hook.update_ldcache(*folders),) if folders else ()),
        hook.disable_device_node_modification(),
        hook.update_application_profile(),
    )


def _platform_links(tree: Tree, shown: Graphics) -> tuple[Link, ...]:
    """SONAME links of the EGL platform libraries; ldconfig makes them where a hook runs it."""
    files = [placed.file for placed in shown.files if fnmatchcase(placed.file.rpartition("/")[2], "lib*.so.*")]
    return library_links(tree, files, complete=True)


def _as_mounts(tree: Tree, links: Iterable[Link], taken: set[str]) -> list[Mount]:
    """The files behind ``links`` mounted under the links' names, where nothing else is mounted already."""
    mounts: dict[str, Mount] = {}
    for link in links:
        if link.path not in taken:
            mounts.setdefault(link.path, _mount(tree, Placed(link.file, link.path)))
    return list(mounts.values())


def _mount(tree: Tree, placed: Placed, options: tuple[str, ...] = _FILE_OPTIONS) -> Mount:
    return Mount(host_path=tree.host(placed.file), container_path=placed.container_path, options=options)


def sorted_nodes(nodes: Iterable[DeviceNode]) -> tuple[DeviceNode, ...]:
    """Without duplicates, by depth and path, so that a parent directory is made before what lies in it."""
    return tuple(sorted(dict.fromkeys(nodes), key=lambda node: (node.path.count("/"), node.path)))


def _sorted_mounts(mounts: Iterable[Mount]) -> tuple[Mount, ...]:
    return tuple(
        sorted(dict.fromkeys(mounts), key=lambda mount: (mount.container_path.count("/"), mount.container_path))
    )
