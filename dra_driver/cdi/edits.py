"""Where a container's edits come from: the installed driver, looked at again whenever it may have changed.

The answer of a search is kept, and given again only while everything the search looked at is unchanged: directories,
device nodes, links, the hook program. So a driver that was upgraded, a node that appeared or vanished, or a replaced
toolkit is seen by the very next claim, without a time to wait for a cache to expire. An answer without the GPU's device
node, or without the driver's control nodes, is never given: a container that starts without them fails later, in words
that nobody understands.

`dra_driver.cdi.described` has the other source, for machines that exist only as a profile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from dra_driver.cdi.discovery.edits import common_edits, gpu_edits
from dra_driver.cdi.discovery.hooks import HookProgram, hook_program
from dra_driver.cdi.discovery.nodes import NodeReader, gpu_nodes
from dra_driver.cdi.discovery.tree import Lstat, Tree, Watch
from dra_driver.cdi.spec import ContainerEdits
from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.hardware import Gpu

T = TypeVar("T")

_SEARCHES: Final = 3

REQUIRED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
"""Without the first nothing works, without the second no CUDA program does."""


class EditsSource(Protocol):
    """Answers what a container must get. Methods block: about 0.1 ms when nothing changed, 10 ms otherwise."""

    def common(self) -> ContainerEdits:
        """Edits for any container that gets a GPU of this node.

        Raises:
            EnvironmentFault: the driver's files or control nodes are missing.
        """
        ...

    def gpu(self, gpu: Gpu) -> ContainerEdits:
        """Edits for a container that gets ``gpu``, beside the common ones.

        Raises:
            EnvironmentFault: its device node is missing.
        """
        ...

    def kept(self, gpus: Sequence[Gpu], since: float) -> EditsSource | None:
        """The answers for ``gpus``, if they are known and found to be still true; never searches.

        A plain value for one claim: it is asked about these GPUs only. Takes 0.1 ms and no thread; claims that are
        prepared at the same time share one look at what is common to them.

        Args:
            since: `time.monotonic`; the common part counts as true when it was looked at after that.

        Returns:
            None when a search is needed, which is what `common` and `gpu` are for.
        """
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not as it should be though containers work, for logs and ``doctor``."""
        ...


@dataclass(frozen=True, slots=True)
class KeptEdits:
    """Answers of an `EditsSource` that were just found to be true."""

    common_edits: ContainerEdits
    by_gpu: Mapping[str, ContainerEdits]
    warnings: tuple[str, ...] = ()

    def common(self) -> ContainerEdits:
        """See `EditsSource.common`."""
        return self.common_edits

    def gpu(self, gpu: Gpu) -> ContainerEdits:
        """See `EditsSource.gpu`."""
        return self.by_gpu[gpu.uuid]

    def kept(self, gpus: Sequence[Gpu], since: float) -> EditsSource:
        """See `EditsSource.kept`."""
        return self


@dataclass(frozen=True, slots=True)
class _Hooks:
    program: HookProgram | None
    watch: Watch

    def current(self) -> bool:
        return self.watch.settled and self.watch.unchanged()


@dataclass(frozen=True, slots=True)
class _Found:
    """Edits with what they depend on: the places looked at, and the hook program."""

    edits: ContainerEdits
    version: str
    hooks: HookProgram | None
    watch: Watch

    def current(self, version: str, hooks: HookProgram | None) -> bool:
        return self.watch.settled and self.version == version and self.hooks == hooks and self.watch.unchanged()


class DriverEdits:
    """The edits of an installed driver. Safe to call from several threads: the worst is a search made twice.

    Args:
        root: the driver's files, as this process and as the host sees them.
        driver_version: the version that NVML reports now, None when the driver does not answer.
        hook_path: host path of the hook program; None searches for it.
        ldconfig_path: host path of ldconfig for the hook; empty leaves the choice to the hook.
        sysfs: where this process sees /sys.
        required_nodes: control nodes without which nothing is answered.
        kernel_release: for firmware directories; None asks uname(2).
        lstat, now_ns, monotonic: the file system and the clocks.
    """

    def __init__(
        self,
        root: DriverRoot,
        driver_version: Callable[[], str | None],
        *,
        hook_path: str | None = None,
        ldconfig_path: str = "",
        sysfs: str = "/sys",
        required_nodes: tuple[str, ...] = REQUIRED_NODES,
        kernel_release: str | None = None,
        lstat: Lstat = os.lstat,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._root = root
        self._driver_version = driver_version
        self._hook_path = hook_path
        self._ldconfig_path = ldconfig_path
        self._sysfs = sysfs.rstrip("/")
        self._required_nodes = required_nodes
        self._kernel_release = kernel_release
        self._lstat = lstat
        self._now_ns = now_ns
        self._hooks: _Hooks | None = None
        self._common: _Found | None = None
        self._gpus: dict[tuple[str, int, str | None], _Found] = {}
        self._common_true_at = 0.0

    def kept(self, gpus: Sequence[Gpu], since: float) -> EditsSource | None:
        """See `EditsSource.kept`."""
        hooks, common, version = self._hooks, self._common, self._driver_version()
        if hooks is None or common is None or not version:
            return None
        if self._common_true_at < since or common.version != version:
            now = self._monotonic()
            if not hooks.current() or not common.current(version, hooks.program):
                return None
            self._common_true_at = now
        found = {}
        for gpu in gpus:
            known = self._gpus.get(_key(gpu))
            if known is None or not known.current(version, hooks.program):
                return None
            found[gpu.uuid] = known.edits
        return KeptEdits(common.edits, found)

    def common(self) -> ContainerEdits:
        """See `EditsSource.common`."""
        version = self._version()
        hooks = self._hook_program()
        known = self._common
        if known is not None and known.current(version, hooks):
            return known.edits
        parts, watch = self._searched(
            lambda watch: common_edits(
                Tree(self._root, watch),
                watch,
                NodeReader(self._root, watch, self._lstat),
                version,
                hooks,
                sysfs=self._sysfs,
                kernel_release=self._kernel_release,
            )
        )
        missing = [path for path in self._required_nodes if path not in parts.nodes]
        if missing:
            raise EnvironmentFault(
                f"the NVIDIA driver's device nodes are missing: {', '.join(map(self._on_host, missing))}",
                hint="run `nvidia-modprobe -c 0 -u` or `nvidia-smi` on the node once its driver is loaded, or start "
                "nvidia-persistenced; check the configured driver root and its /dev",
            )
        self._common = _Found(parts.edits, version, hooks, watch)
        return parts.edits

    def gpu(self, gpu: Gpu) -> ContainerEdits:
        """See `EditsSource.gpu`."""
        version = self._version()
        hooks = self._hook_program()
        key = _key(gpu)
        known = self._gpus.get(key)
        if known is not None and known.current(version, hooks):
            return known.edits
        nodes, watch = self._searched(
            lambda watch: gpu_nodes(
                NodeReader(self._root, watch, self._lstat), watch, gpu.minor, gpu.pci_bus_id, self._sysfs
            )
        )
        path = f"/dev/nvidia{gpu.minor}"
        if path not in nodes:
            self._gpus.pop(key, None)
            raise EnvironmentFault(
                f"GPU gpu-{gpu.minor} ({gpu.name}, {gpu.uuid}): its device node {self._on_host(path)} does "
                "not exist or is no character device",
                hint=f"run `nvidia-modprobe -c {gpu.minor}` or `nvidia-smi` on the node, or start nvidia-persistenced; "
                "check the configured driver root and its /dev",
            )
        edits = gpu_edits(nodes, hooks, host_driver_root=str(self._root.host_path), uuid=gpu.uuid)
        self._gpus[key] = _Found(edits, version, hooks, watch)
        return edits

    @property
    def warnings(self) -> tuple[str, ...]:
        """See `EditsSource.warnings`."""
        if self._hook_program() is not None:
            return ()
        return (
            f"no nvidia-cdi-hook or nvidia-ctk under the driver root {self._root.host_path} or in the host's /usr/bin "
            "and /usr/local/nvidia/toolkit: containers get the driver's libraries under every name by mounts, but CUDA "
            "forward compatibility, GPU memory limits and images whose loader does not search the driver's library "
            "directories do not work; install the NVIDIA Container Toolkit on the node, or configure the path of the "
            "hook program",
        )

    def _version(self) -> str:
        version = self._driver_version()
        if not version:
            raise EnvironmentFault(
                f"the NVIDIA driver under {self._root.host_path} does not answer, so its files can't be chosen",
                hint="check `nvidia-smi` on the node; the next discovery tries again",
            )
        return version

    def _hook_program(self) -> HookProgram | None:
        known = self._hooks
        if known is None or not known.current():
            found, watch = self._searched(
                lambda watch: hook_program(
                    self._root, Tree(self._root, watch), watch, self._hook_path, self._ldconfig_path
                )
            )
            known = self._hooks = _Hooks(found, watch)
        return known.program

    def _searched(self, search: Callable[[Watch], T]) -> tuple[T, Watch]:
        """What a search found and nothing changed meanwhile: half of an installation must not reach a container.

        Raises:
            EnvironmentFault: the files change all the time.
        """
        for _ in range(_SEARCHES):
            watch = Watch(self._now_ns)
            found = search(watch)
            if watch.unchanged():
                return found, watch
        raise EnvironmentFault(
            f"the files under the driver root {self._root.host_path} are being changed",
            hint="wait until the driver's installation has finished",
        )

    def _on_host(self, node: str) -> str:
        return str(self._root.host_dev_root / node.lstrip("/"))


def _key(gpu: Gpu) -> tuple[str, int, str | None]:
    return gpu.uuid, gpu.minor, gpu.pci_bus_id
