"""The devices a node offers at one moment, each with the hardware behind it.

Prepare looks devices up here by the name the scheduler chose; publishing takes the same devices in order. One
snapshot is immutable and replaced as a whole when the inventory changes, so readers need no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dra_driver.devices.gpu import gpu_device, gpu_device_name, publishable
from dra_driver.inventory.hardware import Gpu, Machine, Problem
from dra_driver.model.resource import Device

DEVICES_PER_SLICE = 64
"""The API allows 128, but only 64 once a device of the slice has taints, counters or list attributes (1.35+). Splitting
always at 64 keeps a device in its slice when a taint appears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatableDevice:
    """A device and its hardware.

    Attributes:
        name: as published and as claims name it.
        kind: ``gpu``; selects how it is prepared.
        gpu: the GPU that it is, or is a part of.
        device: what is published.
    """

    name: str
    kind: str
    gpu: Gpu
    device: Device


@dataclass(frozen=True, slots=True)
class AllocatableDevices:
    """All devices of a node in publishing order, with the machine they were derived from.

    Attributes:
        unavailable: names of devices that the node had or could have but can't offer now, with the reason in words.
        problems: everything that was left out, with its cause.
    """

    machine: Machine
    by_name: Mapping[str, AllocatableDevice]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def slices(self) -> tuple[tuple[Device, ...], ...]:
        """The published devices, cut into slices that the API accepts; one empty slice for a pool without devices."""
        devices = [allocatable.device for allocatable in self.by_name.values()]
        chunks = [
            tuple(devices[start : start + DEVICES_PER_SLICE]) for start in range(0, len(devices), DEVICES_PER_SLICE)
        ]
        return tuple(chunks) or ((),)


def allocatable_devices(machine: Machine) -> AllocatableDevices:
    """Derive the devices of a machine; pure and deterministic."""
    gpus, problems = publishable(machine)
    found: list[Problem] = [*machine.problems, *(each for gpu in machine.gpus for each in gpu.problems), *problems]
    by_name: dict[str, AllocatableDevice] = {}
    for gpu in gpus:
        name = gpu_device_name(gpu)
        if name in by_name:
            found.append(Problem(name, "device", f"{gpu.uuid} and {by_name[name].gpu.uuid} have the same minor number"))
            continue
        device, left_out = gpu_device(gpu, machine)
        found.extend(left_out)
        by_name[name] = AllocatableDevice(name=name, kind="gpu", gpu=gpu, device=device)
    unavailable = {problem.subject: problem.cause for problem in found if problem.what == "device"}
    return AllocatableDevices(machine, MappingProxyType(by_name), MappingProxyType(unavailable), tuple(found))
