"""Who uses which device: the last line of defence against one device in two claims.

The scheduler hands out devices, but after a force-deleted Pod it may believe a device free while the node still has the
old claim prepared (kubernetes/kubernetes#141471). So every device is entered here before anything is written for a
claim, and stays entered until the claim's record is gone. Entering checks and takes in one go, in the event loop's
thread, so two claims that are being prepared at the same moment can't both find the device free.

Observers (admin access) use nothing. Shares of one device go together as long as they are different shares. Entries of
an earlier boot don't count: their containers are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dra_driver.model.prepared import ClaimRef
from dra_driver.prepare.claim import ClaimedDevice
from dra_driver.prepare.record import ClaimRecord


@dataclass(frozen=True, slots=True)
class Use:
    """One claim's use of one device; ``share_id`` None is all of it."""

    claim: ClaimRef
    device: str
    share_id: str | None

    def excludes(self, other: Use) -> bool:
        """Whether the two can't be at the same time."""
        return (
            self.device == other.device
            and self.claim.uid != other.claim.uid
            and (self.share_id is None or other.share_id is None or self.share_id == other.share_id)
        )

    def __str__(self) -> str:
        return self.device if self.share_id is None else f"share {self.share_id} of {self.device}"


class DeviceUse:
    """All uses on the node. Not thread-safe: for the event loop's thread only."""

    def __init__(self) -> None:
        self._by_device: dict[str, tuple[Use, ...]] = {}
        self._by_claim: dict[str, tuple[Use, ...]] = {}

    def enter(self, claim: ClaimRef, devices: Iterable[ClaimedDevice]) -> tuple[Use, ...]:
        """Enter a claim's devices beside what it has already, all or none.

        Returns:
            Uses of other claims that stand against it; empty when the devices are entered.
        """
        wanted = tuple(Use(claim, d.device, d.share_id) for d in devices if not d.admin_access)
        against = tuple(other for use in wanted for other in self._by_device.get(use.device, ()) if use.excludes(other))
        if not against:
            self._set(claim.uid, dict.fromkeys((*self._by_claim.get(claim.uid, ()), *wanted)))
        return against

    def settle(self, claim: ClaimRef, record: ClaimRecord | None) -> None:
        """Make the entries of a claim what its record says; none when there is no record (of this boot)."""
        devices = record.devices if record is not None else ()
        self._set(
            claim.uid,
            dict.fromkeys(Use(claim, d.answer.device, d.answer.share_id) for d in devices if not d.admin_access),
        )

    def of_device(self, device: str) -> tuple[Use, ...]:
        """Who uses a device."""
        return self._by_device.get(device, ())

    def _set(self, uid: str, uses: Iterable[Use]) -> None:
        for device in {use.device for use in self._by_claim.pop(uid, ())}:
            rest = tuple(other for other in self._by_device[device] if other.claim.uid != uid)
            if rest:
                self._by_device[device] = rest
            else:
                del self._by_device[device]
        entered = tuple(uses)
        for use in entered:
            self._by_device[use.device] = (*self._by_device.get(use.device, ()), use)
        if entered:
            self._by_claim[uid] = entered
