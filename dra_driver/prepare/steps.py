"""What preparing a device changes on the node, as steps that can be undone by whoever finds them later.

A whole GPU changes nothing. Making a MIG instance, setting a time slice, starting an MPS daemon or binding vfio-pci do;
each kind of device brings a ``DevicePreparer`` that plans such steps. The plan is written durably before the first step
runs (a write-ahead record), so a process killed anywhere leaves a record from which every step that may have run can be
undone. Hence the contract of a step: its arguments are JSON and say everything that ``undo`` needs, ``undo`` is
idempotent and succeeds for a step that never ran, and ``verify`` looks at the node, not at memory.

Devices of one claim that share a configuration are planned together, because some effects belong to the set: one MPS
daemon serves all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from dra_driver.errors import DraDriverError, EnvironmentFault, InputError, InternalError
from dra_driver.model.prepared import ClaimRef
from dra_driver.prepare.claim import ClaimedDevice, claim_source
from dra_driver.prepare.config import Candidate
from dra_driver.prepare.kinds import GpuConfig

if TYPE_CHECKING:
    from dra_driver.cdi.edits import EditsSource
    from dra_driver.cdi.spec import ContainerEdits
    from dra_driver.devices.allocatable import AllocatableDevice

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of the node.

    Attributes:
        preparer: kind of device whose preparer knows the action.
        action: the preparer's own word for it.
        arguments: JSON values; everything that undo needs.
        outcome: JSON values that ``apply`` found out, None before it ran.
    """

    preparer: str
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] | None = None

    def same_plan(self, other: Step) -> bool:
        """True when both ask for the same change, whatever came of it."""
        return replace(self, outcome=None) == replace(other, outcome=None)

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.action}({details})"


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices of one claim and one kind with one configuration.

    Attributes:
        claim: whose devices they are.
        config: the configuration that was chosen for all of them, None for the default.
        devices: what the claim asks, with the device that it got; none of them is admin access.
    """

    claim: ClaimRef
    config: Candidate | None
    devices: tuple[tuple[ClaimedDevice, AllocatableDevice], ...]


class DevicePreparer(Protocol):
    """Prepares one kind of device. All methods but ``plan`` may block and run in a thread; they must be thread-safe."""

    def plan(self, group: DeviceGroup, /) -> Sequence[Step]:
        """Check the configuration against the devices and say what has to change; pure. Raises InputError."""
        ...

    def apply(self, step: Step, /) -> Mapping[str, Any]:
        """Carry the step out. Returns JSON values to remember. Raises EnvironmentFault."""
        ...

    def undo(self, step: Step, /) -> None:
        """Take the step back, whether it ran wholly, partly or not at all. Raises EnvironmentFault."""
        ...

    def verify(self, step: Step, /) -> str | None:
        """None when the step's effect is there, else what is missing."""
        ...

    def edits(self, device: AllocatableDevice, steps: Sequence[Step], source: EditsSource, /) -> ContainerEdits:
        """What a container gets for the device, given the steps of the claim with their outcomes."""
        ...


class WholeGpu:
    """The preparer of whole GPUs: no steps; the device node and the driver's files are all a container needs."""

    def plan(self, group: DeviceGroup, /) -> Sequence[Step]:
        if group.config is None:
            return ()
        value = group.config.value
        if not isinstance(value, GpuConfig):
            raise InternalError(f"{group.config} was chosen for whole GPUs")
        if value.sharing is not None:
            requests = ", ".join(dict.fromkeys(r.request for device, _ in group.devices for r in device.results))
            raise InputError(
                f"not supported by this version: {type(value.sharing).__name__} sharing of whole GPUs"
                f" (request {requests}, source {group.config.source})",
                source=claim_source(group.claim),
                path=f"{group.config.path}.sharing",
                hint="remove sharing to get the GPU exclusively",
            )
        return ()

    def apply(self, step: Step, /) -> Mapping[str, Any]:
        raise InternalError(f"whole GPUs have no step {step}")

    def undo(self, step: Step, /) -> None:
        raise InternalError(f"whole GPUs have no step {step}")

    def verify(self, step: Step, /) -> str | None:
        return f"whole GPUs have no step {step}"

    def edits(self, device: AllocatableDevice, steps: Sequence[Step], source: EditsSource, /) -> ContainerEdits:
        return source.gpu(device.gpu)


def preparer_of(preparers: Mapping[str, DevicePreparer], step: Step) -> DevicePreparer:
    """The preparer that knows the step; a record may be of a newer version that knows more."""
    try:
        return preparers[step.preparer]
    except KeyError:
        raise EnvironmentFault(
            f"step {step} was taken by a version of the driver that prepares devices of kind {step.preparer!r}; this"
            " version can't",
            hint="run that version again, or undo the step by hand and remove the claim's record",
            retryable=False,
        ) from None


def apply_all(preparers: Mapping[str, DevicePreparer], plan: Sequence[Step]) -> tuple[Step, ...]:
    """Carry out a plan whose write-ahead record is durable.

    Returns:
        The steps with their outcomes.

    Raises:
        DraDriverError: a step failed; all steps that may have run are undone. When that fails too, the error carries
            ``undone = False`` and the record has to stay.
    """
    done: list[Step] = []
    for step in plan:
        try:
            outcome = preparer_of(preparers, step).apply(step)
        except DraDriverError as error:
            failure = UndoneStep(f"step {step} failed: {error}")
            try:
                undo_all(preparers, [*done, step])
            except DraDriverError as second:
                failure = UndoneStep(f"step {step} failed: {error}; taking it back failed too: {second}", undone=False)
            raise failure from error
        done.append(replace(step, outcome=outcome))
    return tuple(done)


class UndoneStep(EnvironmentFault):
    """A plan failed half-way.

    Attributes:
        undone: True when nothing of it is left on the node.
    """

    def __init__(self, message: str, *, undone: bool = True) -> None:
        self.undone = undone
        super().__init__(message)


def undo_all(preparers: Mapping[str, DevicePreparer], steps: Sequence[Step]) -> None:
    """Take steps back, the last one first.

    The first failure ends it: a later step may hold what an earlier one made (a compute instance holds its GPU
    instance).
    """
    for step in reversed(steps):
        log.info("taking back step %s", step)
        try:
            preparer_of(preparers, step).undo(step)
        except DraDriverError as error:
            raise EnvironmentFault(f"step {step} can't be taken back: {error}") from error


def missing_effect(preparers: Mapping[str, DevicePreparer], steps: Sequence[Step]) -> str | None:
    """What of the steps' effects is not there (any more), None when all is."""
    for step in steps:
        reason = preparer_of(preparers, step).verify(step)
        if reason is not None:
            return f"{step}: {reason}"
    return None
