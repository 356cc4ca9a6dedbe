"""The rest of a driver's installation: programs, firmware and the sockets of its daemons."""

from __future__ import annotations

from typing import Final

from dra_driver.cdi.discovery.tree import Tree

_PROGRAMS: Final = (
    "nvidia-xconfig",
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)

PROGRAM_DIRECTORIES: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where programs are looked for under a root. The toolkit puts its own process's PATH before them; what a daemon's
environment happens to say is no fact about the driver root, so we do not."""

_FIRMWARE: Final = ("gsp*.bin", "ucodes*.bin")

_SOCKETS: Final = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")


def programs(tree: Tree) -> list[str]:
    """The driver's programs that are installed, each once."""
    return [found for name in _PROGRAMS if (found := program(tree, name)) is not None]


def program(tree: Tree, name: str, directories: tuple[str, ...] = PROGRAM_DIRECTORIES) -> str | None:
    """The first executable ``name``, None when there is none."""
    for directory in directories:
        for path in tree.find(directory, name):
            if tree.is_executable(path):
                return path
    return None


def firmware(tree: Tree, version: str, *, custom: str, kernel_release: str) -> list[str]:
    """GSP firmware and microcode of driver ``version``.

    Args:
        custom: directory set in /sys/module/firmware_class/parameters/path, or empty.
        kernel_release: as uname(2) tells it.
    """
    directories = [directory for directory in custom.split(":") if directory]
    for base in ("/lib/firmware/updates", "/lib/firmware"):
        directories += [f"{base}/{kernel_release}", base]
    return [
        path
        for pattern in _FIRMWARE
        for directory in dict.fromkeys(directories)
        for path in tree.find(directory, f"nvidia/{version}/{pattern}")
    ]


def sockets(tree: Tree) -> list[str]:
    """Sockets through which the driver's libraries talk to its daemons.

    The control directory of MPS is not among them: it belongs to one claim, not to the driver.
    """
    found = []
    for name in _SOCKETS:
        paths = tree.find("/run", name) or tree.find("/var/run", name)
        found.extend(paths[:1])
    return found
