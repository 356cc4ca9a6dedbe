"""The program that finishes a container before it starts, and its calls.

NVIDIA's ``nvidia-cdi-hook`` (or ``nvidia-ctk hook``) makes symbolic links, updates the linker's cache, chooses CUDA's
compatibility libraries and hides what must not be changed from inside. The runtime starts it on the host, so its path
is a host path; but it may be looked for only where this process sees the host's files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver.cdi.discovery.installation import PROGRAM_DIRECTORIES, program
from dra_driver.cdi.discovery.tree import Tree, Watch, is_there
from dra_driver.cdi.spec import Hook
from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.driver_root import DriverRoot

_NAMES: Final = ("nvidia-cdi-hook", "nvidia-ctk")
_ON_HOST: Final = ("/usr/bin", "/usr/local/nvidia/toolkit")
"""The toolkit's package, and where the GPU operator puts it."""


@dataclass(frozen=True, slots=True)
class HookProgram:
    """Makes the hooks of a spec.

    Attributes:
        path: on the host.
        ldconfig: the host's ldconfig, empty for the program's own choice.
    """

    path: str
    ldconfig: str = ""

    def create_symlinks(self, *links: object) -> Hook:
        """Make symbolic links; each prints as ``target::path``."""
        return self._hook("create-symlinks", *(part for link in links for part in ("--link", str(link))))

    def enable_cuda_compat(self, driver_version: str) -> Hook:
        """Prefer the container's CUDA compatibility libraries when they are newer than the driver."""
        return self._hook("enable-cuda-compat", f"--host-driver-version={driver_version}")

    def update_ldcache(self, *directories: str) -> Hook:
        """Make the container's loader find the libraries in ``directories``."""
        arguments = ["--ldconfig-path", self.ldconfig] if self.ldconfig else []
        for directory in directories:
            arguments += ["--folder", directory]
        return self._hook("update-ldcache", *arguments)

    def disable_device_node_modification(self) -> Hook:
        """Keep libnvidia-ml in the container from making device nodes."""
        return self._hook("disable-device-node-modification")

    def update_application_profile(self) -> Hook:
        """Show EGL and Vulkan only the GPUs whose nodes the container has."""
        return self._hook("update-application-profile")

    def apply_cuda_memory_limits(self, driver_root: str, gpu_uuid: str) -> Hook:
        """Apply the limits that the container's environment asks for (NVIDIA_GPU_MEMORY_*, cgroup v2)."""
        return self._hook(
            "apply-cuda-memory-limits", "--driver-root", driver_root, "--gpu-id", gpu_uuid, stage="createRuntime"
        )

    def _hook(self, name: str, *arguments: str, stage: str = "createContainer") -> Hook:
        base = self.path.rpartition("/")[2]
        fixed = (base, "hook") if base == "nvidia-ctk" else (base,)
        return Hook(hook_name=stage, path=self.path, args=(*fixed, name, *arguments), env=("NVIDIA_CTK_DEBUG=false",))


def hook_program(
    root: DriverRoot, tree: Tree, watch: Watch, explicit: str | None = None, ldconfig: str = ""
) -> HookProgram | None:
    """The hook program: ``explicit`` (a host path), else under the driver root, else the host's; None when there is
    none.

    ``nvidia-cdi-hook`` is looked for everywhere before ``nvidia-ctk``.

    Raises:
        EnvironmentFault: ``explicit`` is not there, as far as this process can see.
    """
    host = host_files(root)
    if explicit:
        if host is not None and not watch.add(is_there, f"{host}{explicit}".replace("//", "/")):
            raise EnvironmentFault(
                f"the configured CDI hook program {explicit} does not exist on the host",
                hint="install the NVIDIA Container Toolkit there, or correct the configured path of the hook program",
            )
        return HookProgram(explicit, ldconfig)
    outside = None if host is None else Tree(DriverRoot(host, host_path="/", dev_root=host), watch)
    for name in _NAMES:
        found = program(tree, name, PROGRAM_DIRECTORIES)
        if found is not None:
            return HookProgram(tree.host(found), ldconfig)
        if outside is not None:
            found = program(outside, name, _ON_HOST)
            if found is not None:
                return HookProgram(outside.host(found), ldconfig)
    return None


def host_files(root: DriverRoot) -> Path | None:
    """Where this process sees the host's ``/``, as far as the two paths of the driver root tell; None when they do not.

    The host's ``/run/nvidia/driver`` seen at ``/driver-root/run/nvidia/driver`` means ``/driver-root``. The same path
    on
    both sides means nothing: it may be a mount of that one directory, and ``/`` our own container.
    """
    here, there = os.path.normpath(root.path), os.path.normpath(root.host_path)
    if there == "/":
        return Path(here)
    if here.endswith(there) and here != there:
        return Path(here[: -len(there)])
    return None
