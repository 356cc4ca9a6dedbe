"""What OpenGL, EGL, Vulkan and X.Org need beyond the versioned libraries: platform libraries, X.Org modules,
descriptions.

EGL and Vulkan find a vendor's library through small JSON files; without them a container has the libraries and still
renders in software. They are mounted where the loaders of every distribution look, wherever the host keeps them.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Final

from dra_driver.cdi.discovery.libraries import DriverLibraries, locate
from dra_driver.cdi.discovery.links import Link
from dra_driver.cdi.discovery.tree import Tree

_PLATFORM_LIBRARIES: Final = (
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
)
"""They carry versions of their own, not the driver's."""

_BELOW_LIBRARIES: Final = (
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
_XORG_MODULES: Final = tuple(
    f"{base}/modules/{kind}"
    for base in ("/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64")
    for kind in ("drivers", "extensions", "updates/drivers", "updates/extensions")
)

_TO_USR_SHARE: Final = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
_TO_ETC: Final = ("OpenCL/vendors/nvidia.icd",)
_VULKAN: Final = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)

DATA_DIRECTORIES: Final = ("/usr/local/share", "/usr/share")
"""Where shared data lies when XDG_DATA_DIRS does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A file of the driver root and its path in the container."""

    file: str
    container_path: str


@dataclass(frozen=True, slots=True)
class Graphics:
    """Files with their container paths, and links."""

    files: tuple[Placed, ...]
    links: tuple[Link, ...]


def graphics(tree: Tree, libraries: DriverLibraries, data_directories: tuple[str, ...] = DATA_DIRECTORIES) -> Graphics:
    """The graphics part of a driver; empty on a compute-only installation."""
    version = libraries.version
    platform_libraries = tuple(path for pattern in _PLATFORM_LIBRARIES for path in locate(tree, pattern))
    allocator = locate(tree, f"libnvidia-allocator.so.{version}")
    vulkan_producer = locate(tree, f"libnvidia-vulkan-producer.so.{version}")
    module_directories = (
        *(f"{base.rstrip('/')}/{kind}" for base in libraries.directories for kind in _BELOW_LIBRARIES),
        *_XORG_MODULES,
    )
    driver_module = _first(tree, module_directories, "nvidia_drv.so")
    extension = _first(tree, module_directories, f"libglxserver_nvidia.so.{version}")
    # libnvidia-allocator is found for its link only; the file itself is among the versioned libraries.
    mounted = (*platform_libraries, *vulkan_producer, *driver_module, *extension)
    links = (
        *(_link(path, "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1") for path in allocator),
        *(_link(path, "libnvidia-vulkan-producer.so", path.rpartition("/")[2]) for path in vulkan_producer),
        *(_link(path, "libglxserver_nvidia.so", path.rpartition("/")[2]) for path in extension),
    )
    return Graphics((*(Placed(path, path) for path in mounted), *_descriptions(tree, data_directories)), links)


def _link(file: str, relative: str, target: str) -> Link:
    return Link(f"{file.rpartition('/')[0]}/{relative}", target, file)


def _descriptions(tree: Tree, data_directories: tuple[str, ...]) -> list[Placed]:
    searched = ("/etc", *data_directories)
    # RPM packages name the Vulkan driver's file by processor; GKE puts the folder directly under its driver root.
    vulkan = (*_VULKAN, f"vulkan/icd.d/nvidia_icd.{platform.machine()}.json")
    placed: list[Placed] = []
    for directory, names, places in (
        ("/usr/share", _TO_USR_SHARE, searched),
        ("/etc", _TO_ETC, searched),
        ("/etc", vulkan, (*searched, "/")),
    ):
        for name in names:
            placed.extend(Placed(file, f"{directory}/{name}") for file in _first(tree, places, name))
    return placed


def _first(tree: Tree, directories: tuple[str, ...], name: str) -> list[str]:
    """The file ``name`` of the first directory that has it, as a list of one or none."""
    for directory in directories:
        found = tree.find(directory, name)
        if found:
            return found[:1]
    return []
