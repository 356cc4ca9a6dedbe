"""Is a claim that we hold devices for still wanted?

Asked when another claim needs one of the devices, and by the reconcile loop.

Two witnesses must agree before anything is taken away: the API server says that the claim is gone, replaced, no longer
allocated (to these devices) or reserved for nobody that exists, and the kubelet's PodResources shows no container with
it. After a force-deleted Pod the API server forgets the claim while its containers may still be ending. When a witness
can't be asked, the answer is "can't tell", which changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum

from dra_driver.errors import DraDriverError
from dra_driver.model.prepared import ClaimRef
from dra_driver.model.resource import ResourceClaim
from dra_driver.prepare.claim import ClaimReader, says_not_found
from dra_driver.prepare.record import ClaimRecord

ClaimsInUse = Callable[[], Awaitable[Collection[tuple[str, str]]]]
"""Namespace and name of every claim that a container on this node has (PodResources). Raises EnvironmentFault."""

PodExists = Callable[[str, str, str], Awaitable[bool]]
"""Whether the Pod of that namespace, name and UID exists at the API server. Raises EnvironmentFault."""


class Wanted(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reason`` reads on from the name of the claim: "is gone", "can't be asked about: …"."""

    wanted: Wanted
    reason: str


class ClaimFate:
    """Asks both witnesses.

    Args:
        driver, pool: ours; a claim is wanted for its devices of this driver and pool only.
        claims: reads claims from the API server.
        in_use: asks the kubelet.
        pod_exists: asks about consumers; without it a reservation is believed.
    """

    def __init__(
        self,
        *,
        driver: str,
        pool: str,
        claims: ClaimReader,
        in_use: ClaimsInUse,
        pod_exists: PodExists | None = None,
    ) -> None:
        self._driver = driver
        self._pool = pool
        self._claims = claims
        self._in_use = in_use
        self._pod_exists = pod_exists

    async def judge(self, record: ClaimRecord, in_use: Collection[tuple[str, str]] | None = None) -> Verdict:
        """The verdict about one claim.

        Args:
            record: what we hold for it.
            in_use: an answer of the kubelet that is recent enough, to save asking again.
        """
        ref = record.ref
        try:
            claim = await self.read(ref)
            reason = await self._why_unwanted(record, claim)
        except DraDriverError as error:
            return Verdict(Wanted.UNKNOWN, f"can't be asked about at the API server: {error}")
        if reason is None:
            return Verdict(Wanted.YES, "is still allocated and reserved")
        if in_use is None:
            try:
                in_use = await self._in_use()
            except DraDriverError as error:
                return Verdict(Wanted.UNKNOWN, f"{reason}, but the kubelet can't be asked for its containers: {error}")
        if (ref.namespace, ref.name) in in_use:
            return Verdict(Wanted.YES, f"{reason}, but containers on this node still have it")
        return Verdict(Wanted.NO, reason)

    async def read(self, ref: ClaimRef) -> ResourceClaim | None:
        """The claim of that name now, None when there is none. Raises DraDriverError when that can't be told."""
        try:
            return await self._claims.get(ref)
        except DraDriverError as error:
            if says_not_found(error):
                return None
            raise

    async def containers(self) -> Collection[tuple[str, str]]:
        """Claims that containers on this node have. Raises EnvironmentFault."""
        return await self._in_use()

    async def _why_unwanted(self, record: ClaimRecord, claim: ResourceClaim | None) -> str | None:
        if claim is None:
            return "is gone"
        if claim.metadata.uid != record.ref.uid:
            return f"got replaced by one with UID {claim.metadata.uid}"
        allocation = claim.status.allocation
        if allocation is None:
            return "is no longer allocated"
        allocated = {
            (result.device, result.share_id)
            for result in allocation.devices.results
            if result.driver == self._driver and result.pool == self._pool
        }
        lost = [d.answer.device for d in record.devices if (d.answer.device, d.answer.share_id) not in allocated]
        if lost:
            return f"is no longer allocated {', '.join(lost)}"
        consumers = claim.status.reserved_for
        if not consumers:
            return "is reserved for nobody"
        if self._pod_exists is None or any(c.resource != "pods" or c.api_group for c in consumers):
            return None
        for consumer in consumers:
            if await self._pod_exists(record.ref.namespace, consumer.name, consumer.uid):
                return None
        return f"is reserved only for Pods that are gone ({', '.join(c.name for c in consumers)})"
