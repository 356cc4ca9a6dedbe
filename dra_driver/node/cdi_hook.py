"""Puts the image's ``nvidia-cdi-hook`` where the container runtime can run it.

The runtime runs hooks on the host, so a program inside the daemon's image is of no use to it. The kubelet's plugin
folder has the same path inside and outside of the daemon's Pod, and it stays while the node does; NVIDIA's driver
puts its copy there too.
"""

from __future__ import annotations

import filecmp
import logging
import os
import shutil
from pathlib import Path

from dra_driver.devices.gpu import DRIVER
from dra_driver.node.configuration import NodeConfiguration

log = logging.getLogger(__name__)

NAME = "nvidia-cdi-hook"


def hook_path(configuration: NodeConfiguration) -> str | None:
    """The hook's path on the host: as configured, else a copy of the image's own, else None (it is searched for).

    A copy that can't be made is told and costs only the copy.
    """
    if configuration.nvidia_cdi_hook:
        return configuration.nvidia_cdi_hook
    bundled = Path(configuration.bundled_cdi_hook) if configuration.bundled_cdi_hook else None
    if bundled is None or not bundled.is_file():
        return None
    target = configuration.state_dir(DRIVER) / NAME
    try:
        if not target.is_file() or not filecmp.cmp(bundled, target, shallow=False):
            _copy(bundled, target)
    except OSError as error:
        log.warning("%s can't be copied to %s for the container runtime: %s", bundled, target, error.strerror or error)
        return None
    return str(target)


def _copy(source: Path, target: Path) -> None:
    """Replace the file as a whole: a container that is being made may run the old one at this moment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, temporary)
        temporary.chmod(0o755)
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    log.info("copied %s to %s", source, target)
