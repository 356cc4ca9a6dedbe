"""The node's GPUs and what containers get for them, whatever happens to the NVIDIA driver meanwhile.

The driver may be installed after the daemon has started, move to another root (packages, driver container, GKE) or be
upgraded. The inventory follows it; the container edits are always those of the root where the inventory found it last.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from dra_driver.cdi.described import DescribedEdits
from dra_driver.cdi.edits import DriverEdits, EditsSource
from dra_driver.cdi.spec import ContainerEdits
from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.driver_root import DriverRoot, known_roots
from dra_driver.inventory.hardware import Gpu, Machine
from dra_driver.inventory.profile import DescribedInventory
from dra_driver.node.cdi_hook import hook_path
from dra_driver.node.configuration import NodeConfiguration
from dra_driver.node.discovery import Inventory

log = logging.getLogger(__name__)


def candidate_roots(configuration: NodeConfiguration) -> Sequence[DriverRoot]:
    """Where the driver may be: the configured root alone, or every known one."""
    if not configuration.driver_root:
        return known_roots()
    root = DriverRoot(
        configuration.driver_root,
        host_path=configuration.host_driver_root or None,
        dev_root=configuration.dev_root or None,
        host_dev_root=configuration.host_dev_root or None,
    )
    return (root,)


class NvmlHardware:
    """Real GPUs: an inventory, and an :class:`EditsSource` on the driver root that the inventory uses now."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        from dra_driver.inventory.nvml import NvmlInventory

        self._configuration = configuration
        self._hook_path = hook_path(configuration)
        self._inventory = NvmlInventory(
            lambda: DriverRoot.probe(candidate_roots(configuration)),
            sysfs=configuration.sys_root,
            proc=configuration.proc_root,
        )
        self._root: DriverRoot | None = None
        self._edits: DriverEdits | None = None
        self._machine: Machine | None = None

    def discover(self) -> Machine:
        """Look at the hardware; blocks."""
        machine = self._inventory.discover()
        root = self._inventory.driver_root
        if root != self._root:
            self._follow(root)
        self._machine = machine
        return machine

    def close(self) -> None:
        """End the NVML session, so that the driver can be unloaded."""
        self._inventory.close()

    def common(self) -> ContainerEdits:
        return self._current().common()

    def gpu(self, gpu: Gpu) -> ContainerEdits:
        return self._current().gpu(gpu)

    def kept(self, gpus: Sequence[Gpu], since: float) -> EditsSource | None:
        return self._edits.kept(gpus, since) if self._edits is not None else None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._edits.warnings if self._edits is not None else ()

    def _follow(self, root: DriverRoot | None) -> None:
        self._root = root
        if root is None:
            self._edits = None
            return
        log.info("the NVIDIA driver is under %s (on the host: %s)", root.path, root.host_path)
        self._edits = DriverEdits(
            root,
            lambda: self._machine.driver_version if self._machine is not None else None,
            hook_path=self._hook_path,
            sysfs=self._configuration.sys_root,
        )

    def _current(self) -> DriverEdits:
        if self._edits is None:
            reason = self._machine.reason if self._machine is not None else "the hardware has not been looked at yet"
            hint = self._machine.hint if self._machine is not None else None
            raise EnvironmentFault(f"there is no NVIDIA driver to take a container's files from: {reason}", hint=hint)
        return self._edits


def hardware(configuration: NodeConfiguration) -> tuple[Inventory, EditsSource]:
    """The node's inventory and container edits.

    Raises:
        InputError: the described machine does not exist.
    """
    if configuration.inventory == "nvml":
        real = NvmlHardware(configuration)
        return real, real
    described = DescribedInventory(configuration.inventory, node_name=configuration.node_name)
    return described, DescribedEdits(described.discover().source)


def boot_id_path(configuration: NodeConfiguration) -> Path:
    """The kernel's boot id below the configured procfs."""
    return Path(configuration.proc_root) / "sys/kernel/random/boot_id"
