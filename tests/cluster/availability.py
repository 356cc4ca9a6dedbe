"""What a test does when this machine can't run it: skip with the reason, except in CI, where that is a failure.

A silent skip in CI would be a hole in the net that nobody sees, so the environment variable ``CI`` turns it into an
error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

DEBIAN_PACKAGE_OF = {
    "runc": "runc",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "openssl": "openssl",
    "ip": "iproute2",
}
"""Program on PATH -> Debian package that has it; what `apt-get install` is told when one is missing."""


class Unavailable(Exception):
    """This machine lacks something that a test partner needs; ``str()`` names it and the remedy."""


def require_programs(names: Iterable[str]) -> None:
    """Raise `Unavailable` naming every program of ``names`` that is not on PATH, and the packages that bring them."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        packages = " ".join(DEBIAN_PACKAGE_OF.get(name, name) for name in missing)
        raise Unavailable(f"not on PATH: {', '.join(missing)} (Debian: apt-get install {packages})")


def require_root() -> None:
    """Raise `Unavailable` unless this process may mount, create device nodes and write control groups."""
    if os.geteuid() != 0:
        raise Unavailable("needs root: containers, mounts and control groups are created")
    if not any(Path("/sys/fs/cgroup").glob("*")):
        raise Unavailable("no control groups under /sys/fs/cgroup")
    if "overlay" not in Path("/proc/filesystems").read_text():
        raise Unavailable("the kernel has no overlay filesystem")


def skip_or_fail(reason: str | Exception) -> NoReturn:
    """End the running test: skipped with ``reason`` on a developer's machine, failed when ``CI`` is set."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI every integration test must run: {reason}", pytrace=False)
    pytest.skip(str(reason))
