"""PCI addresses, PCIe roots and NUMA nodes from sysfs.

The values are those of Kubernetes' own helper package (dynamic-resource-allocation/deviceattribute), because claims
align GPUs with network cards and CPUs of other drivers by comparing them: ``pcieRoot`` is the root complex, not the
nearest switch; a NUMA node of -1 (no affinity) is never reported, since all devices without affinity would then seem
to be together.

``/sys/bus/pci/devices/<address>`` links to ``/sys/devices/pciDDDD:BB/…/<address>``. Only the link's text is read,
never the file behind it, so a sysfs mounted elsewhere works.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from dra_driver.errors import EnvironmentFault, InputError

MAX_NUMA_NODES = 1024
"""Linux: MAX_NUMNODES is at most 1 << 10."""

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def normalise_bus_id(text: str) -> str:
    """The address as the kernel writes it: ``dddd:bb:dd.f`` in lower case.

    NVML prints eight digits of domain in upper case (``00000000:1B:00.0``). Domains above ffff exist (VMD:
    ``10000:01:00.0``) and keep their digits. A missing domain is 0.

    Raises:
        InputError: not a PCI address.
    """
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        raise InputError(
            f"{text!r} is not a PCI address", hint="expected domain:bus:device.function, e.g. 0000:1b:00.0"
        )
    domain, bus, device, function = match.groups()
    if int(device, 16) > 0x1F:
        raise InputError(f"{text!r} is not a PCI address: device {device} is greater than 1f")
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"


def pcie_root(bus_id: str, sysfs: str | Path = "/sys") -> str:
    """The PCIe root complex, ``pciDDDD:BB``, of the device at a normalised address.

    Raises:
        EnvironmentFault: sysfs has no such device, or the link leads somewhere else.
    """
    link = Path(sysfs) / "bus/pci/devices" / bus_id
    try:
        target = PurePosixPath(link.readlink())
    except OSError as error:
        raise EnvironmentFault(
            f"PCI device {bus_id}: can't read the link {link}: {error.strerror}",
            hint="mount the host's /sys, or set --sys-root",
        ) from None
    parts = target.parts
    # Relative (../../../devices/pci0000:00/…) or, in a captured tree, absolute: what counts comes after "devices".
    try:
        below = parts[parts.index("devices") + 1 :]
    except ValueError:
        below = ()
    if len(below) < 2 or below[-1] != bus_id or not _ROOT.fullmatch(below[0]):
        raise EnvironmentFault(f"PCI device {bus_id}: {link} links to {target}, not to devices/pciDDDD:BB/…/{bus_id}")
    return below[0]


def numa_node(bus_id: str, sysfs: str | Path = "/sys") -> int | None:
    """The NUMA node whose CPUs are nearest to the device; None when the platform tells none (-1).

    Raises:
        EnvironmentFault: sysfs has no such device, or the number is unreadable.
    """
    file = Path(sysfs) / "bus/pci/devices" / bus_id / "numa_node"
    node = _read_int(file, f"PCI device {bus_id}")
    if node >= MAX_NUMA_NODES:
        raise EnvironmentFault(f"PCI device {bus_id}: {file} says {node}, the kernel's limit is {MAX_NUMA_NODES - 1}")
    return node if node >= 0 else None


def near_numa_nodes(node: int, sysfs: str | Path = "/sys") -> tuple[int, ...]:
    """The list form of ``numaNode``: the node itself, then those of the same socket at the least distance, ascending.

    Distances are the ACPI SLIT row of the node. A neighbour whose socket can't be told (memory without CPUs) counts as
    near: better one node too many than to lose a true neighbour. Without distances only the node itself is near.
    """
    nodes = Path(sysfs) / "devices/system/node"
    try:
        distances = [int(text) for text in (nodes / f"node{node}/distance").read_text().split()]
    except (OSError, ValueError):
        return (node,)
    others = [distance for other, distance in enumerate(distances) if other != node]
    if node >= len(distances) or not others:
        return (node,)
    socket = _socket_of(node, sysfs)
    near = [
        other
        for other, distance in enumerate(distances)
        if other != node and distance == min(others) and _same_socket(socket, _socket_of(other, sysfs))
    ]
    return (node, *near)


def cpu_numa_node(cpu: int, sysfs: str | Path = "/sys") -> int | None:
    """The NUMA node of a CPU, from ``cpuN/nodeM``; None when the kernel was built without NUMA."""
    folder = Path(sysfs) / f"devices/system/cpu/cpu{cpu}"
    nodes = sorted(int(entry.name[4:]) for entry in folder.glob("node[0-9]*") if entry.name[4:].isdigit())
    return nodes[0] if nodes else None


def first_cpu(cpulist: str) -> int | None:
    """The lowest CPU of a kernel list such as ``0-23,96-119``; None for an empty or unreadable list."""
    cpus = [part.split("-")[0] for part in cpulist.strip().split(",")]
    return min((int(cpu) for cpu in cpus if cpu.isdigit()), default=None)


def nvidia_devices(sysfs: str | Path = "/sys") -> Sequence[str]:
    """Addresses of NVIDIA's display controllers (vendor 10de, class 03xx), sorted; empty when sysfs can't be read."""
    found = []
    try:
        entries = sorted((Path(sysfs) / "bus/pci/devices").iterdir())
    except OSError:
        return ()
    for entry in entries:
        try:
            vendor, kind = (entry / "vendor").read_text().strip(), (entry / "class").read_text().strip()
        except OSError:  # unplugged while we look
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            found.append(entry.name)
    return tuple(found)


def _same_socket(ours: int | None, theirs: int | None) -> bool:
    return ours is None or theirs is None or ours == theirs


def _socket_of(node: int, sysfs: str | Path) -> int | None:
    system = Path(sysfs) / "devices/system"
    try:
        cpu = first_cpu((system / f"node/node{node}/cpulist").read_text())
        return None if cpu is None else int((system / f"cpu/cpu{cpu}/topology/physical_package_id").read_text())
    except (OSError, ValueError):
        return None


def _read_int(file: Path, subject: str) -> int:
    try:
        return int(file.read_text())
    except OSError as error:
        raise EnvironmentFault(f"{subject}: can't read {file}: {error.strerror}") from None
    except ValueError:
        raise EnvironmentFault(f"{subject}: {file} holds no number") from None
