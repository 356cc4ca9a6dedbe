"""What is on the node for a claim: steps taken, CDI spec, record.

Made, verified and cleared in an order that survives kill -9 at any point.

Making: [started record, steps] -> CDI spec -> completed record -> answer.
Clearing: steps taken back -> CDI spec removed -> record removed -> answer.

A process killed between any two of these leaves a record, or a CDI spec named after the claim, or nothing; never an
answer without both. The next Prepare goes over it, the next Unprepare removes it, and the reconcile loop collects it
when neither comes. The CDI spec is not flushed to the disk: it lies on a tmpfs and its checksum is in the record, so a
damaged one is noticed and made again. A whole GPU has no steps and so costs one durable write.

What says that it does not block is for the event loop, the rest for a thread; one claim is never made and cleared at
the same time.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace

from dra_driver.cdi.edits import EditsSource
from dra_driver.cdi.files import SpecDirectory
from dra_driver.cdi.render import render
from dra_driver.cdi.spec import CdiDevice
from dra_driver.devices.allocatable import AllocatableDevices
from dra_driver.errors import DraDriverError, EnvironmentFault
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from dra_driver.prepare.plan import ClaimPlan, recorded
from dra_driver.prepare.record import ClaimRecord
from dra_driver.prepare.records import RecordStore, valid_uid
from dra_driver.prepare.steps import DevicePreparer, Step, UndoneStep, apply_all, missing_effect, undo_all

log = logging.getLogger(__name__)

CLASS = "claim"


class NodeState:
    """Makes, verifies and clears what the node holds for claims of one driver.

    Args:
        driver: our driver name; CDI specs have the kind ``k8s.<driver>/claim``, as with NVIDIA's driver.
        records: what is remembered.
        specs: the directory of CDI specs.
        edits: what containers get.
        preparers: by kind of device.
    """

    def __init__(
        self,
        *,
        driver: str,
        records: RecordStore,
        specs: SpecDirectory,
        edits: EditsSource,
        preparers: Mapping[str, DevicePreparer],
    ) -> None:
        self.vendor = f"k8s.{driver}"
        self.spec_prefix = f"{self.vendor}-{CLASS}_"
        self._records = records
        self._specs = specs
        self._edits = edits
        self._preparers = preparers

    def spec_name(self, uid: str) -> str:
        """File name of a claim's CDI spec."""
        return f"{self.spec_prefix}{uid}.json"

    def verified(self, uid: str, known: AllocatableDevices | None) -> tuple[PreparedDevice, ...] | None:
        """The answer that the record holds, if everything that it speaks of is there; else None.

        Never raises for what it finds: what is not there will be made again, and that will tell what is in the way.
        """
        try:
            record = self._records.find(uid)
            if record is None or record.state != "completed" or not self._records.is_current(record):
                return None
            missing = self._missing(record, known)
        except DraDriverError as error:
            missing = str(error)
            record = None
        if missing is not None or record is None:
            log.info("record of claim %s no longer holds: %s", uid, missing)
            return None
        return record.answer

    def _missing(self, record: ClaimRecord, known: AllocatableDevices | None) -> str | None:
        for device in record.devices:
            present = known.by_name.get(device.answer.device) if known is not None else None
            if present is None:
                return f"device {device.answer.device} is not there"
            if present.gpu.uuid != device.identity:
                return f"device {device.answer.device} was {device.identity} and is now {present.gpu.uuid}"
        content = self._specs.read(record.cdi_file)
        if content is None:
            return f"CDI spec {record.cdi_file} is missing"
        if hashlib.sha256(content).hexdigest() != record.cdi_sha256:
            return f"CDI spec {record.cdi_file} was changed"
        return missing_effect(self._preparers, record.steps)

    def render_kept(self, plan: ClaimPlan, since: float) -> bytes | None:
        """The CDI spec of a plan without steps from what is known to be true; None when it has to be searched for.

        Does not block, so it can be done in the event loop: eight threads that each ask the file system a hundred
        questions take turns at the interpreter's lock for each of them.
        """
        kept = self._edits.kept([device.allocatable.gpu for device in plan.devices], since)
        return self._render(plan, (), kept) if kept is not None else None

    def look_ahead(self, since: float) -> None:
        """Find out whether the known edits are still true, while the claim is being read anyway."""
        self._edits.kept((), since)

    def establish(self, plan: ClaimPlan, content: bytes | None = None) -> ClaimRecord:
        """Make everything that the plan asks for, over whatever an earlier attempt left.

        Args:
            content: the CDI spec, from `render_kept`; None makes it here.

        Raises:
            DraDriverError: nothing new is left on the node, or what is left stands in the record.
        """
        ref = plan.claim.ref
        devices = recorded(plan, vendor=self.vendor, cls=CLASS)
        target = ClaimRecord(ref=ref, state="started", boot_id=self._records.boot_id, devices=devices, steps=plan.steps)
        if not devices:  # all results are other drivers': there is nothing to make, and nothing may be left
            self.clear(ref)
            return target
        before = self._records.find(ref.uid)
        if before is not None and not self._records.is_current(before):
            before = None  # of an earlier boot: its effects are gone, its file is about to be replaced
        steps = self._kept(before, plan)
        if steps is None:
            if before is not None:
                self.clear(ref)
                before = None
            steps = self._take_steps(target) if plan.steps else ()
        try:
            if content is None:
                content = self._render(plan, steps, self._edits)
            self._specs.write(self.spec_name(ref.uid), content)
            self._remove_foreign_spec(ref.uid)
            record = replace(
                target,
                state="completed",
                steps=steps,
                cdi_file=self.spec_name(ref.uid),
                cdi_sha256=hashlib.sha256(content).hexdigest(),
                written_by=before.written_by if before is not None else "",
                written_at=before.written_at if before is not None else "",
            )
            # The CDI spec was made again just as it was: the record on the disk already says so.
            return record if record == before else self._records.put(record)
        except DraDriverError as error:
            if before is None:
                self._clear_after(error, ref, steps)
            raise

    def _kept(self, before: ClaimRecord | None, plan: ClaimPlan) -> tuple[Step, ...] | None:
        """Steps of an earlier attempt that are just what the plan wants and whose effects are there."""
        if not plan.steps and (before is None or not before.steps):
            return ()
        if before is None or before.state != "completed" or len(before.steps) != len(plan.steps):
            return None
        if not all(old.same_plan(new) for old, new in zip(before.steps, plan.steps, strict=True)):
            return None
        missing = missing_effect(self._preparers, before.steps)
        if missing is not None:
            log.warning("claim %s has to be prepared anew: %s", before.ref, missing)
            return None
        return before.steps

    def _take_steps(self, started: ClaimRecord) -> tuple[Step, ...]:
        self._records.put(started)
        try:
            return apply_all(self._preparers, started.steps)
        except UndoneStep as error:
            if error.undone:
                self._clear_after(error, started.ref)
            raise

    def _render(self, plan: ClaimPlan, steps: tuple[Step, ...], source: EditsSource) -> bytes:
        devices = [
            CdiDevice(
                name=device.cdi_name,
                edits=self._preparers[device.allocatable.kind].edits(device.allocatable, steps, source),
            )
            for device in plan.devices
        ]
        return render(f"{self.vendor}/{CLASS}", devices, source.common())

    def _clear_after(self, error: DraDriverError, ref: ClaimRef, steps: tuple[Step, ...] = ()) -> None:
        """Remove what a failed attempt made; if that fails too, both are told and the record stays for the next one."""
        try:
            undo_all(self._preparers, steps)
            self._remove_spec(self.spec_name(ref.uid))
            self._records.remove(ref.uid)
        except DraDriverError as second:
            raise EnvironmentFault(f"{error}; and cleaning up after it failed: {second}") from error

    def clear(self, ref: ClaimRef) -> None:
        """Remove everything of a claim; a claim of which there is nothing is cleared already.

        Raises:
            DraDriverError: something stays; it is still in the record or has the claim's UID in its name.
        """
        if not valid_uid(ref.uid):
            return  # no file of ours can have such a name
        record = self._records.find(ref.uid)
        if record is not None and self._records.is_current(record):
            undo_all(self._preparers, record.steps)
        self._remove_spec(self.spec_name(ref.uid))
        self._remove_foreign_spec(ref.uid)
        self._records.remove(ref.uid)

    def specs_on_disk(self) -> dict[str, tuple[str, ...]]:
        """File names of claims' CDI specs by the claim's UID. Raises EnvironmentFault."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self._specs.names(self.spec_prefix):
            uid = name.removeprefix(self.spec_prefix).rpartition(".")[0]
            found[uid] = (*found.get(uid, ()), name)
        return found

    def sweep(self) -> list[str]:
        """Delete temporary files that killed writers left; returns their names. Raises EnvironmentFault."""
        return [*self._records.sweep(), *self._specs.sweep()]

    def _remove_foreign_spec(self, uid: str) -> None:
        """NVIDIA's driver writes the same device names to a .yaml; two specs with one name make both unusable."""
        self._remove_spec(f"{self.spec_prefix}{uid}.yaml")

    def _remove_spec(self, name: str) -> None:
        try:
            self._specs.remove(name)
        except EnvironmentFault:
            # A read-only file system refuses before it looks: a file that isn't there needs no removing.
            if self._specs.read(name) is not None:
                raise
