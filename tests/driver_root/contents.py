"""What an installed NVIDIA driver consists of, as data: libraries with SONAMEs and links, programs, configuration.

Names follow the files of the 580 branch; the list is long enough that every rule of the discovery meets at least one
file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library.

    Attributes:
        name: file name, ``{v}`` stands for the driver version.
        soname: DT_SONAME, ``{v}`` likewise.
        links: symbolic links beside the file, name and target.
        place: ``lib`` for the library directory itself, ``xorg-drivers`` and ``xorg-extensions`` for X.Org modules,
            anything else is a directory below the library directory.
    """

    name: str
    soname: str
    links: tuple[tuple[str, str], ...] = ()
    place: str = "lib"


def _versioned(stem: str, major: int | None, *, bare_link: bool = False, place: str = "lib") -> Library:
    """``stem.so.<version>`` with the SONAME ``stem.so.<major>`` (its own name when there is no major number)."""
    name = f"{stem}.so.{{v}}"
    if major is None:
        return Library(name, name, place=place)
    soname = f"{stem}.so.{major}"
    links = [(soname, name)]
    if bare_link:
        links.append((f"{stem}.so", soname))
    return Library(name, soname, tuple(links), place)


def _platform(stem: str, version: str, soname: str) -> Library:
    """An EGL platform library, which has a version of its own."""
    return Library(f"{stem}.so.{version}", soname, ((soname, f"{stem}.so.{version}"),))


LIBRARIES: tuple[Library, ...] = (
    _versioned("libcuda", 1, bare_link=True),
    _versioned("libcudadebugger", 1),
    _versioned("libnvidia-ml", 1, bare_link=True),
    _versioned("libnvcuvid", 1, bare_link=True),
    _versioned("libnvidia-encode", 1, bare_link=True),
    _versioned("libnvidia-opticalflow", 1),
    _versioned("libnvidia-fbc", 1),
    _versioned("libnvidia-ptxjitcompiler", 1),
    _versioned("libnvidia-nvvm", 4, bare_link=True),
    _versioned("libnvidia-opencl", 1),
    _versioned("libnvidia-allocator", 1, bare_link=True),
    _versioned("libnvidia-cfg", 1, bare_link=True),
    _versioned("libnvidia-gpucomp", None),
    _versioned("libnvidia-glcore", None),
    _versioned("libnvidia-glsi", None),
    _versioned("libnvidia-glvkspirv", None),
    _versioned("libnvidia-eglcore", None),
    _versioned("libnvidia-rtcore", None),
    _versioned("libnvidia-tls", None),
    _versioned("libnvidia-ngx", 1),
    _versioned("libnvidia-pkcs11-openssl3", None),
    _versioned("libnvidia-sandboxutils", 1),
    _versioned("libnvidia-vksc-core", 1),
    _versioned("libEGL_nvidia", 0),
    _versioned("libGLESv1_CM_nvidia", 1),
    _versioned("libGLESv2_nvidia", 2),
    _versioned("libGLX_nvidia", 0),
    _versioned("libnvoptix", 1),
    Library(
        "libnvidia-vulkan-producer.so.{v}",
        "libnvidia-vulkan-producer.so",
        (("libnvidia-vulkan-producer.so", "libnvidia-vulkan-producer.so.{v}"),),
    ),
    Library("libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4"),
    _platform("libnvidia-egl-gbm", "1.1.2", "libnvidia-egl-gbm.so.1"),
    _platform("libnvidia-egl-wayland", "1.1.19", "libnvidia-egl-wayland.so.1"),
    _platform("libnvidia-egl-wayland2", "1.0.0", "libnvidia-egl-wayland2.so.1"),
    _platform("libnvidia-egl-xcb", "1.0.3", "libnvidia-egl-xcb.so.1"),
    _platform("libnvidia-egl-xlib", "1.0.3", "libnvidia-egl-xlib.so.1"),
    _versioned("libvdpau_nvidia", 1, place="vdpau"),
    Library("nvidia_drv.so", "nvidia_drv.so", place="xorg-drivers"),
    Library(
        "libglxserver_nvidia.so.{v}",
        "libglxserver_nvidia.so",
        (("libglxserver_nvidia.so", "libglxserver_nvidia.so.{v}"),),
        place="xorg-extensions",
    ),
)

PROGRAMS: tuple[str, ...] = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)

CONFIGURATION: tuple[str, ...] = (
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
    "usr/share/nvidia/nvoptix.bin",
    "usr/share/X11/xorg.conf.d/10-nvidia.conf",
    "usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "etc/OpenCL/vendors/nvidia.icd",
)

FIRMWARE: tuple[str, ...] = ("gsp_ga10x.bin", "gsp_tu10x.bin", "ucodes_ga10x.bin")

SOCKETS: tuple[str, ...] = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
