"""Collects what the kubelet lost.

The kubelet unprepares what it remembers. After a force-deleted Pod, a wiped kubelet directory or a claim that was
deleted by hand it may not, and then a device would stay taken for ever. One run, at start and every ten minutes:

- takes over what another instance of the driver wrote or removed (rolling update),
- unprepares records whose claim is unwanted according to both witnesses (`fate`), started and completed ones alike,
  those of an earlier boot too,
- removes CDI specs without a record, and temporary files.

A CDI spec knows its claim's UID but not its name, so the API server can't be asked for it. Such a spec goes when no
claim that a container on this node has carries that UID, and when it was an orphan at an earlier run already: a Pod
whose containers are yet to be made has had time to come back to Prepare, which makes the spec again anyway.

Whatever can't be asked is said in the report, and everything that depends on it stays.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from dra_driver.errors import DraDriverError, EnvironmentFault
from dra_driver.model.prepared import ClaimRef
from dra_driver.prepare.fate import ClaimFate, Verdict, Wanted
from dra_driver.prepare.service import Held, PrepareService

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 600.0

_AT_ONCE = 8
"""Questions to the API server at a time; a node that was away has as many claims as Pods."""


@dataclass(frozen=True, slots=True)
class Collected:
    """A claim that was cleaned up, and why nobody wanted it."""

    claim: ClaimRef
    reason: str


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """What one run did.

    Attributes:
        collected: claims unprepared.
        kept: number of records that stay.
        orphans: names of CDI specs removed.
        temporary: names of temporary files removed.
        undecided: what had to stay because somebody could not be asked, in words.
        failed: what could not be removed, in words.
    """

    collected: tuple[Collected, ...] = ()
    kept: int = 0
    orphans: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class Reconciler:
    """Runs the collection; the caller decides when.

    Args:
        service: whose records and CDI specs these are.
        fate: the witnesses.
        orphan_seconds: for how long a CDI spec has to be known as an orphan before it goes.
    """

    def __init__(
        self,
        service: PrepareService,
        fate: ClaimFate,
        *,
        orphan_seconds: float = INTERVAL_SECONDS / 2,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._fate = fate
        self._orphan_seconds = orphan_seconds
        self._monotonic = monotonic
        self._orphan_since: dict[str, float] = {}

    async def run_once(self) -> ReconcileReport:
        """Collect once; never raises for what it meets, the report tells."""
        undecided: list[str] = []
        failed: list[str] = []
        try:
            await self._service.refresh()
        except EnvironmentFault as error:
            failed.append(str(error))
        collected = await self._collect(undecided, failed)
        orphans = await self._collect_orphans(undecided, failed)
        try:
            temporary = await self._service.sweep()
        except EnvironmentFault as error:
            temporary = []
            failed.append(str(error))
        report = ReconcileReport(
            collected=collected,
            kept=len(self._service.held()),
            orphans=orphans,
            temporary=tuple(temporary),
            undecided=tuple(undecided),
            failed=tuple(failed),
        )
        for line in (*report.undecided, *report.failed):
            log.warning("reconcile: %s", line)
        return report

    async def _collect(self, undecided: list[str], failed: list[str]) -> tuple[Collected, ...]:
        idle = [held for held in self._service.held() if not self._service.busy(held.record.ref.uid)]
        if not idle:
            return ()
        try:
            in_use = await self._fate.containers()
        except DraDriverError as error:
            undecided.append(f"all {len(idle)} records stay: the kubelet can't be asked for its containers: {error}")
            return ()
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def judge(held: Held) -> Verdict:
            async with at_once:
                return await self._fate.judge(held.record, in_use)

        collected = []
        for held, verdict in zip(idle, await asyncio.gather(*map(judge, idle)), strict=True):
            ref = held.record.ref
            if verdict.wanted is Wanted.UNKNOWN:
                undecided.append(f"ResourceClaim {ref} (UID {ref.uid}) {verdict.reason}; its devices stay prepared")
            elif verdict.wanted is Wanted.NO:
                result = await self._service.collect(held)
                if isinstance(result, DraDriverError):
                    failed.append(str(result))
                elif result:
                    log.warning("ResourceClaim %s (UID %s) %s: collected", ref, ref.uid, verdict.reason)
                    collected.append(Collected(ref, verdict.reason))
        return tuple(collected)

    async def _collect_orphans(self, undecided: list[str], failed: list[str]) -> tuple[str, ...]:
        try:
            on_disk = await self._service.specs_on_disk()
        except EnvironmentFault as error:
            failed.append(str(error))
            return ()
        recorded = {held.record.ref.uid for held in self._service.held()}
        now = self._monotonic()
        orphans = {uid for uid in on_disk if uid not in recorded and not self._service.busy(uid)}
        self._orphan_since = {uid: self._orphan_since.get(uid, now) for uid in orphans}
        due = sorted(uid for uid, since in self._orphan_since.items() if now - since >= self._orphan_seconds)
        if not due:
            return ()
        try:
            alive = await self._uids_in_use(await self._fate.containers())
        except DraDriverError as error:
            undecided.append(f"CDI specs without a record stay ({', '.join(due)}): {error}")
            return ()
        removed: list[str] = []
        for uid in due:
            if uid in alive:
                continue
            result = await self._service.collect_orphan(uid)
            if isinstance(result, DraDriverError):
                failed.append(str(result))
            elif result:
                del self._orphan_since[uid]
                removed.extend(on_disk[uid])
                log.warning("CDI spec %s has no record and no container: removed", ", ".join(on_disk[uid]))
        return tuple(removed)

    async def _uids_in_use(self, in_use: Collection[tuple[str, str]]) -> set[str]:
        """UIDs of the claims that containers have. Raises DraDriverError when one can't be told."""
        claims = await asyncio.gather(*(self._fate.read(ClaimRef(ns, name, "")) for ns, name in in_use))
        return {claim.metadata.uid for claim in claims if claim is not None}
