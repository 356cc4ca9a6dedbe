"""The kubelet's two calls, prepare and unprepare, for any number of claims at once.

Per claim: a record that still holds is answered at once, without the API server. Otherwise the claim is read, checked
and planned; its devices are entered as used; its CDI spec and its record are made; then it is answered. What may
wait for a disk or a device runs in threads. A claim waits for nothing but itself (`turns`), and fails alone, with an
answer that carries the whole cause.

Why threads, and where not: on a busy two-core machine with ext4, going to a thread and back costs about 0.1 ms, a
durable record 0.3 to 0.5 ms, and eight of them 2.2 ms in threads against 3.0 ms one after another, during which
nothing else would run; a slow disk only widens that. Verifying a record without steps takes 0.04 ms (a read from a
tmpfs and a checksum), less than the way to a thread, so what never waits for a disk is done in the event loop's thread:
to verify a record without steps, to see that the known edits are still true, to remove names. Threads that make many
small system calls are no gain: they take turns at the interpreter's lock for each. All writes of a claim share one
visit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from dra_driver.cdi.edits import EditsSource
from dra_driver.cdi.files import SpecDirectory
from dra_driver.devices.allocatable import AllocatableDevices
from dra_driver.errors import DraDriverError, EnvironmentFault, InputError
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from dra_driver.model.resource import ResourceClaim
from dra_driver.prepare.claim import AllocatedClaim, ClaimReader, claim_source, read_allocation
from dra_driver.prepare.device_use import DeviceUse, Use
from dra_driver.prepare.failure import failure
from dra_driver.prepare.fate import ClaimFate, Wanted
from dra_driver.prepare.kinds import GPU_KINDS, ConfigurationKind
from dra_driver.prepare.node_state import NodeState
from dra_driver.prepare.plan import ClaimPlan, plan_claim
from dra_driver.prepare.record import ClaimRecord
from dra_driver.prepare.records import RecordStore, valid_uid
from dra_driver.prepare.steps import DevicePreparer, WholeGpu
from dra_driver.prepare.turns import Overtaken, Turn, Turns

log = logging.getLogger(__name__)

T = TypeVar("T")

Prepared = tuple[PreparedDevice, ...]
Outcome = Literal["ok", "recorded", "error"]


@dataclass(frozen=True, slots=True)
class ClaimDone:
    """One claim's prepare or unprepare has ended, for metrics.

    Attributes:
        outcome: ``recorded`` is a prepare that was answered from a record that still holds.
        seconds: from the beginning of the work, without waiting for an earlier call for the same claim.
        error: what the kubelet is told, None on success.
    """

    operation: Literal["prepare", "unprepare", "collect"]
    claim: ClaimRef
    outcome: Outcome
    seconds: float
    error: DraDriverError | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A record as it was when somebody began to judge it; ``answers`` counts how often it was given out by then."""

    record: ClaimRecord
    answers: int


class PrepareService:
    """Implements the kubelet edge's ``ClaimPreparer``.

    Args:
        driver: our driver name.
        pool: of this node, which is the node's name.
        claims: reads claims from the API server.
        devices: the devices of this node now, None before the first look at the hardware.
        edits, specs: what containers get, and where CDI specs go.
        records: what is remembered; read by ``start``.
        preparers: by kind of device.
        kinds: opaque configuration that is understood.
        fate: asked about the other claim when a device is in use already; None never asks.
        seconds_since_look: age of ``devices``, for messages.
        on_missing_device: called when a claim names a device that isn't known, so that the hardware is looked at.
        on_failure: told of each failed prepare, with the claim if it could be read, for Events.
        observe: told of each claim that was dealt with.
        claim_read_seconds: how long the API server may take; less than the kubelet waits (45 s), so that the reason
            reaches it.
    """

    def __init__(
        self,
        *,
        driver: str,
        pool: str,
        claims: ClaimReader,
        devices: Callable[[], AllocatableDevices | None],
        edits: EditsSource,
        specs: SpecDirectory,
        records: RecordStore,
        preparers: Mapping[str, DevicePreparer] | None = None,
        kinds: Sequence[ConfigurationKind] = GPU_KINDS,
        fate: ClaimFate | None = None,
        seconds_since_look: Callable[[], float | None] = lambda: None,
        on_missing_device: Callable[[], None] = lambda: None,
        on_failure: Callable[[ClaimRef, ResourceClaim | None, DraDriverError], None] = lambda ref, claim, error: None,
        observe: Callable[[ClaimDone], None] = lambda done: None,
        claim_read_seconds: float = 30.0,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.driver = driver
        self.pool = pool
        self._claims = claims
        self._devices = devices
        self._records = records
        self._preparers = preparers if preparers is not None else {"gpu": WholeGpu()}
        self._kinds = kinds
        self._fate = fate
        self._seconds_since_look = seconds_since_look
        self._on_missing_device = on_missing_device
        self._on_failure = on_failure
        self._observe = observe
        self._claim_read_seconds = claim_read_seconds
        self._monotonic = monotonic
        self.state = NodeState(driver=driver, records=records, specs=specs, edits=edits, preparers=self._preparers)
        self._use = DeviceUse()
        self._turns: Turns[Prepared | DraDriverError] = Turns()
        self._answers: dict[str, int] = {}
        self._files = ThreadPoolExecutor(16, "prepare-files")
        # Steps may take a minute (a GPU that does not become idle); they must not keep plain claims from their threads.
        self._steps = ThreadPoolExecutor(32, "prepare-steps")

    async def start(self) -> None:
        """Read the records. Raises EnvironmentFault when the state directory can't be read at all."""
        await self._in_thread(self._records.load)
        for record in self._records.all():
            self._settle(record.ref)

    async def close(self) -> None:
        """Wait for all work to end; nothing may be asked afterwards."""
        await self._turns.idle()
        self._files.shutdown()
        self._steps.shutdown()

    def prepared(self) -> tuple[ClaimRecord, ...]:
        """Records of claims that are prepared now."""
        return tuple(r for r in self._records.all() if r.state == "completed" and self._records.is_current(r))

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Sequence[PreparedDevice] | DraDriverError]:
        """Make the devices of each claim ready; one entry per claim, by UID."""
        answers: dict[str, Sequence[PreparedDevice] | DraDriverError] = {}
        work: dict[str, asyncio.Future[Prepared | DraDriverError]] = {}
        for ref in claims:
            if ref.uid in answers or ref.uid in work:
                continue
            at_once = self._answer_at_once(ref)
            if at_once is not None:
                answers[ref.uid] = at_once
            else:
                work[ref.uid] = self._turns.run(ref.uid, "prepare", partial(self._prepare, ref))
        for uid, result in zip(work, await asyncio.gather(*work.values()), strict=True):
            answers[uid] = result
        return answers

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, DraDriverError | None]:
        """Take back what was made for each claim; neither the API server nor the GPU driver is asked."""
        unique = {ref.uid: ref for ref in claims}
        done = await asyncio.gather(
            *(self._turns.run(ref.uid, "unprepare", partial(self._unprepare, ref)) for ref in unique.values())
        )
        return {
            uid: result if isinstance(result, DraDriverError) else None
            for uid, result in zip(unique, done, strict=True)
        }

    # --- prepare

    def _answer_at_once(self, ref: ClaimRef) -> Prepared | None:
        """The answer of a record without steps, in the event loop's thread."""
        record = self._records.get(ref.uid)
        if record is None or record.steps or self._turns.busy(ref.uid):
            return None
        started = self._monotonic()
        answer = self.state.verified(ref.uid, self._devices())
        if answer is not None:
            self._answered(ref)
            self._observe(ClaimDone("prepare", ref, "recorded", self._monotonic() - started))
        return answer

    async def _prepare(self, ref: ClaimRef, turn: Turn) -> Prepared | DraDriverError:
        started = self._monotonic()
        read: list[ResourceClaim] = []
        outcome: Outcome = "ok"
        error: DraDriverError | None = None
        answer: Prepared = ()
        try:
            recorded = None
            if self._records.get(ref.uid) is not None:
                recorded = await self._in_thread(
                    self.state.verified, ref.uid, self._devices(), steps=self._has_steps(ref)
                )
            if recorded is not None:
                answer, outcome = recorded, "recorded"
                self._settle(ref)
            else:
                answer = await self._prepare_anew(ref, turn, read)
            self._answered(ref)
        except Overtaken:
            error = EnvironmentFault(
                f"{claim_source(ref)} was unprepared while it was being prepared",
                hint="nothing to do: its Pod is going away",
            )
        except Exception as fault:  # noqa: BLE001  # the claim's boundary: it must not reach other claims
            error = _told("prepare", ref, fault)
        if error is not None:
            outcome = "error"
            self._tell_failure(ref, read[0] if read else None, error)
        self._observe(ClaimDone("prepare", ref, outcome, self._monotonic() - started, error))
        return error if error is not None else answer

    async def _prepare_anew(self, ref: ClaimRef, turn: Turn, read: list[ResourceClaim]) -> Prepared:
        if not valid_uid(ref.uid):  # before anything is made that could not be found again by the UID
            raise InputError(f"UID {ref.uid!r} of {claim_source(ref)} can't be part of a file name")
        self._settle(ref)
        since = time.monotonic()
        asyncio.get_running_loop().call_soon(self.state.look_ahead, since)
        claim = await turn.ask(partial(self._read_claim, ref))
        read.append(claim)
        allocated = read_allocation(ref, claim, driver=self.driver, pool=self.pool)
        # Decoding configuration may import pydantic, which takes longer than everything else.
        plan = await self._in_thread(self._plan, allocated) if allocated.configs else self._plan(allocated)
        await self._enter(turn, allocated)
        try:
            steps = bool(plan.steps) or self._has_steps(ref)
            content = None if steps else self.state.render_kept(plan, since)
            record = await self._in_thread(self.state.establish, plan, content, steps=steps)
        finally:
            self._settle(ref)
        return record.answer

    async def _read_claim(self, ref: ClaimRef) -> ResourceClaim:
        try:
            async with asyncio.timeout(self._claim_read_seconds):
                return await self._claims.get(ref)
        except TimeoutError as error:
            raise EnvironmentFault(
                f"{claim_source(ref)} can't be read: the API server did not answer within"
                f" {self._claim_read_seconds:.0f} s",
                hint="the kubelet tries again; check the node's connection to the API server",
            ) from error

    def _plan(self, allocated: AllocatedClaim) -> ClaimPlan:
        known = self._devices()
        if any(known is None or device.device not in known.by_name for device in allocated.devices):
            self._on_missing_device()
        return plan_claim(
            allocated,
            known,
            driver=self.driver,
            kinds=self._kinds,
            preparers=self._preparers,
            seconds_since_look=self._seconds_since_look(),
        )

    async def _enter(self, turn: Turn, claim: AllocatedClaim) -> None:
        """Enter the claim's devices as used, after collecting other users that nobody wants any more."""
        self._learn_of_others()
        against = self._use.enter(claim.ref, claim.devices)
        if not against:
            return
        reasons = {}
        for other in {use.claim.uid: use.claim for use in against}.values():
            reasons[other.uid] = await turn.ask(partial(self._why_kept, other))
        against = self._use.enter(claim.ref, claim.devices)
        if against:
            raise _in_use(claim.ref, against, reasons.get(against[0].claim.uid))

    def _learn_of_others(self) -> None:
        """Count what another instance of the driver prepared meanwhile (rolling update) as used.

        Lists one directory, in 0.02 ms. Raises EnvironmentFault when it can't be listed.
        """
        appeared, _ = self._records.refresh()
        for uid in appeared:
            if not self._turns.busy(uid):  # else it is ours, written at this moment
                record = self._records.find(uid)
                if record is not None:
                    self._settle(record.ref)

    async def _why_kept(self, other: ClaimRef) -> str | None:
        """Collect another claim if nobody wants it; else say in words why it stays."""
        if self._turns.busy(other.uid):
            # Waiting for its turn could wait for ours.
            return "which is being prepared or unprepared at this moment"
        # During a rolling update another instance may have unprepared it.
        await self._turns.run(other.uid, "collect", partial(self._look_again, other.uid))
        held = self._held(other.uid)
        if held is None or self._fate is None:
            return None
        verdict = await self._fate.judge(held.record)
        if verdict.wanted is not Wanted.NO:
            return f"which {verdict.reason}"
        log.warning("%s %s, but was never unprepared; collecting it as its device is needed", other, verdict.reason)
        result = await self.collect(held)
        if isinstance(result, DraDriverError):
            return f"which {verdict.reason}, but could not be collected: {result}"
        return None

    # --- unprepare

    async def _unprepare(self, ref: ClaimRef, turn: Turn) -> Prepared | DraDriverError:
        return await self._clear(ref, "unprepare")

    async def _clear(self, ref: ClaimRef, operation: Literal["unprepare", "collect"]) -> Prepared | DraDriverError:
        started = self._monotonic()
        error: DraDriverError | None = None
        try:
            if self._has_steps(ref):
                await self._in_thread(self.state.clear, ref, steps=True)
            else:
                self.state.clear(ref)
        except Exception as fault:  # noqa: BLE001  # the claim's boundary, as in prepare
            error = _told(operation, ref, fault)
        finally:
            self._settle(ref)
        self._observe(ClaimDone(operation, ref, "ok" if error is None else "error", self._monotonic() - started, error))
        return () if error is None else error

    # --- for the reconcile loop

    def held(self) -> tuple[Held, ...]:
        """All records in the order of their claims' names, to be judged and perhaps collected."""
        records = sorted(self._records.all(), key=lambda r: (r.ref.namespace, r.ref.name, r.ref.uid))
        return tuple(Held(record, self._answers.get(record.ref.uid, 0)) for record in records)

    def busy(self, uid: str) -> bool:
        """Whether something is done for the claim at this moment."""
        return self._turns.busy(uid)

    async def collect(self, held: Held) -> bool | DraDriverError:
        """Clear a claim that was judged unwanted.

        Returns:
            False when the claim was prepared or answered again since it was judged, and so was left alone.
        """
        ref = held.record.ref
        left_alone = False

        async def work(turn: Turn) -> Prepared | DraDriverError:
            nonlocal left_alone
            if self._held(ref.uid) != held:
                left_alone = True
                return ()
            return await self._clear(ref, "collect")

        result = await self._turns.run(ref.uid, "collect", work)
        return result if isinstance(result, DraDriverError) else not left_alone

    async def collect_orphan(self, uid: str) -> bool | DraDriverError:
        """Remove the CDI spec of a claim of which there is no record; False when there is one by now."""
        ref = ClaimRef("", "", uid)
        left_alone = False

        async def work(turn: Turn) -> Prepared | DraDriverError:
            nonlocal left_alone
            if await self._in_thread(self._records.find, uid) is not None:
                left_alone = True
                self._settle(ref)
                return ()
            return await self._clear(ref, "collect")

        result = await self._turns.run(uid, "collect", work)
        return result if isinstance(result, DraDriverError) else not left_alone

    async def refresh(self) -> None:
        """Take over what another instance of the driver recorded or removed since. Raises EnvironmentFault."""
        appeared, vanished = await self._in_thread(self._records.refresh)
        for uid in (*appeared, *vanished):
            await self._turns.run(uid, "collect", partial(self._look_again, uid))

    async def sweep(self) -> list[str]:
        """Delete temporary files that killed writers left; returns their names. Raises EnvironmentFault."""
        return await self._in_thread(self.state.sweep)

    async def specs_on_disk(self) -> Mapping[str, tuple[str, ...]]:
        """File names of claims' CDI specs by UID. Raises EnvironmentFault."""
        return await self._in_thread(self.state.specs_on_disk)

    async def _look_again(self, uid: str, turn: Turn) -> Prepared | DraDriverError:
        known = self._records.get(uid)
        try:
            found = await self._in_thread(self._records.find, uid)
        except EnvironmentFault as error:
            return error
        record = found or known
        if record is not None:
            self._settle(record.ref)
        return ()

    # --- shared

    def _held(self, uid: str) -> Held | None:
        record = self._records.get(uid)
        return Held(record, self._answers.get(uid, 0)) if record is not None else None

    def _has_steps(self, ref: ClaimRef) -> bool:
        record = self._records.get(ref.uid)
        return record is not None and bool(record.steps)

    def _answered(self, ref: ClaimRef) -> None:
        if self._records.get(ref.uid) is not None:
            self._answers[ref.uid] = self._answers.get(ref.uid, 0) + 1

    def _settle(self, ref: ClaimRef) -> None:
        record = self._records.get(ref.uid)
        if record is None:
            self._answers.pop(ref.uid, None)
        self._use.settle(ref, record if record is not None and self._records.is_current(record) else None)

    def _tell_failure(self, ref: ClaimRef, claim: ResourceClaim | None, error: DraDriverError) -> None:
        try:
            self._on_failure(ref, claim, error)
        except Exception:  # an Event that can't be written must not change what the kubelet is told
            log.exception("the failure of %s could not be reported", claim_source(ref))

    async def _in_thread(self, work: Callable[..., T], *arguments: object, steps: bool = False) -> T:
        threads = self._steps if steps else self._files
        return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *arguments))


def _told(operation: str, ref: ClaimRef, fault: Exception) -> DraDriverError:
    """What the kubelet is told of a failure; it is logged, a bug with its traceback."""
    error = failure(ref, fault)
    expected = isinstance(fault, DraDriverError)
    log.log(
        logging.WARNING if expected else logging.ERROR,
        "%s failed: %s",
        operation,
        error,
        exc_info=None if expected else fault,
        extra={"fields": {"namespace": ref.namespace, "claim": ref.name, "uid": ref.uid}},
    )
    return error


def _in_use(claim: ClaimRef, against: Sequence[Use], reason: str | None) -> EnvironmentFault:
    first = against[0]
    others = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
    return EnvironmentFault(
        f"{claim_source(claim)} (UID {claim.uid}): {first} is already prepared for {claim_source(first.claim)}"
        f" (UID {first.claim.uid}){', ' + reason if reason else ''}{others}",
        hint="a device is given to one claim at a time; the kubelet tries again when the other claim's Pod has ended",
    )
