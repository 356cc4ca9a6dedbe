"""What has to be made for a claim: each device with its hardware, and the steps that its configuration asks for.

Pure: decided from the claim and one snapshot of the devices, before anything is touched. Everything that can be refused
is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dra_driver.cdi.spec import device_name, qualified_name
from dra_driver.devices.allocatable import AllocatableDevice, AllocatableDevices
from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.inventory.hardware import DriverState
from dra_driver.model.prepared import PreparedDevice
from dra_driver.prepare.claim import AllocatedClaim, ClaimedDevice, claim_source
from dra_driver.prepare.config import Candidate, candidates, choose
from dra_driver.prepare.kinds import ConfigurationKind
from dra_driver.prepare.record import RecordedDevice
from dra_driver.prepare.steps import DeviceGroup, DevicePreparer, Step


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """A device that the claim asks for, with the hardware that it got and its name in the CDI spec."""

    claimed: ClaimedDevice
    allocatable: AllocatableDevice
    cdi_name: str


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """Everything to be done for one claim; devices in the order of the allocation."""

    claim: AllocatedClaim
    devices: tuple[PlannedDevice, ...]
    steps: tuple[Step, ...]


def plan_claim(
    claim: AllocatedClaim,
    known: AllocatableDevices | None,
    *,
    driver: str,
    kinds: Sequence[ConfigurationKind],
    preparers: Mapping[str, DevicePreparer],
    seconds_since_look: float | None = None,
) -> ClaimPlan:
    """Decide what to do for a claim.

    Args:
        known: the devices of this node, None before the first look at the hardware.
        preparers: by kind of device.
        seconds_since_look: age of ``known``, for messages.

    Raises:
        EnvironmentFault: a device does not exist (any more).
        InputError: the configuration is wrong or not supported.
    """
    configs = candidates(claim, driver=driver, kinds=kinds) if claim.configs else ()
    devices = []
    groups: dict[tuple[str, int | None], list[tuple[ClaimedDevice, AllocatableDevice]]] = {}
    chosen_by_index: dict[int, Candidate] = {}
    for claimed in claim.devices:
        allocatable = _look_up(claim, claimed, known, seconds_since_look)
        chosen = choose(claim, claimed, allocatable.kind, configs) if configs else None
        if allocatable.kind not in preparers:
            raise InputError(
                f"not supported by this version: device {claimed.device} of kind {allocatable.kind} (request"
                f" {claimed.results[0].request}, configured by {chosen or 'default'})",
                source=claim_source(claim.ref),
                path=f"status.allocation.devices.results[{claimed.results[0].index}]",
                hint=f"this version prepares devices of kind {', '.join(sorted(preparers))}",
            )
        name = claimed.device if claimed.share_id is None else f"{claimed.device}-{claimed.share_id}"
        devices.append(PlannedDevice(claimed, allocatable, device_name(claim.ref.uid, name)))
        # An observer must not change what it observes, whatever its configuration says.
        if not claimed.admin_access:
            if chosen is not None:
                chosen_by_index[chosen.index] = chosen
            key = allocatable.kind, chosen.index if chosen is not None else None
            groups.setdefault(key, []).append((claimed, allocatable))
    steps: list[Step] = []
    for (kind, index), members in groups.items():
        config = chosen_by_index[index] if index is not None else None
        steps.extend(preparers[kind].plan(DeviceGroup(claim.ref, config, tuple(members))))
    return ClaimPlan(claim, tuple(devices), tuple(steps))


def recorded(plan: ClaimPlan, *, vendor: str, cls: str) -> tuple[RecordedDevice, ...]:
    """The plan's devices as they are recorded and answered."""
    return tuple(
        RecordedDevice(
            answer=PreparedDevice(
                requests=device.claimed.requests,
                pool=device.claimed.pool,
                device=device.claimed.device,
                cdi_ids=(qualified_name(vendor, cls, device.cdi_name),),
                share_id=device.claimed.share_id,
            ),
            kind=device.allocatable.kind,
            identity=device.allocatable.gpu.uuid,
            admin_access=device.claimed.admin_access,
        )
        for device in plan.devices
    )


def _look_up(
    claim: AllocatedClaim, claimed: ClaimedDevice, known: AllocatableDevices | None, seconds_since_look: float | None
) -> AllocatableDevice:
    subject = f"{claim_source(claim.ref)}: request {claimed.results[0].request}: device {claimed.device}"
    if known is None:
        raise EnvironmentFault(
            f"{subject} can't be prepared yet: the hardware of this node has not been looked at",
            hint="the kubelet tries again; if it stays, see the driver's log for why discovery does not end",
        )
    found = known.by_name.get(claimed.device)
    if found is not None:
        return found
    looked = f"looked at {seconds_since_look:.0f} s ago" if seconds_since_look is not None else "time of look unknown"
    if known.machine.state is not DriverState.READY:
        raise EnvironmentFault(
            f"{subject} is not available on node {claimed.pool}: {known.machine.reason or known.machine.state.value}"
            f" ({looked})",
            hint="the kubelet tries again; the device comes back with the NVIDIA driver",
        )
    if claimed.device in known.unavailable:
        raise EnvironmentFault(
            f"{subject} is not available on node {claimed.pool}: {known.unavailable[claimed.device]} ({looked})",
            hint="repair the device, or delete the Pod so that it gets another one",
        )
    raise EnvironmentFault(
        f"{subject} does not exist on node {claimed.pool},"
        f" which has {', '.join(known.by_name) or 'no devices'} ({looked})",
        hint="the scheduler used an older ResourceSlice; delete the Pod so that it is scheduled again",
    )
