"""What an allocated ResourceClaim asks of this driver on this node.

A pure reading of the API object. The kubelet names a claim by namespace, name and UID; only the UID is an identity,
because a name is free again as soon as its claim is gone. Results of other drivers are ignored, results for another
pool are refused: device names repeat from node to node, and the same name in another pool is another device.

The entries of one device are merged. One result per request is the API's way to say "this device serves that request";
the kubelet's answer has one entry per device with the requests that it serves, and older releases stored some entries
twice. Source: resource.k8s.io/v1 ResourceClaim, KEP-4381, KEP-5018 (admin access), KEP-5075 (share ids).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dra_driver.errors import DraDriverError, EnvironmentFault, InputError
from dra_driver.model.prepared import ClaimRef
from dra_driver.model.resource import (
    DeviceAllocationConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
)


class ClaimReader(Protocol):
    """Reads one claim from the API server.

    Raises an ``EnvironmentFault`` when it can't; one that says "no such object" carries ``status == 404``.
    """

    async def get(self, ref: ClaimRef, /) -> ResourceClaim: ...


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One entry of ``status.allocation.devices.results`` of our driver.

    Attributes:
        index: its position there.
        request: as the allocation names it, ``req`` or ``req/sub``.
    """

    index: int
    request: str
    admin_access: bool

    @property
    def base_request(self) -> str:
        """The request without the subrequest that was chosen for it."""
        return base_request(self.request)


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device, or a share of one, with everything in the claim that it serves.

    Attributes:
        pool, device: as in the ResourceSlice.
        share_id: which of several allocations of the device this is; None when it is allocated as a whole.
        results: at least one, in the order of the allocation.
    """

    pool: str
    device: str
    share_id: str | None
    results: tuple[RequestResult, ...]

    @property
    def admin_access(self) -> bool:
        """True when the claim only observes the device, which any number of claims may do."""
        return all(result.admin_access for result in self.results)

    @property
    def requests(self) -> tuple[str, ...]:
        """Base request names, each once, in the order of the allocation."""
        return tuple(dict.fromkeys(result.base_request for result in self.results))


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """The part of a claim that this driver has to prepare.

    Attributes:
        ref: identity; ``ref.uid`` equals the UID of the API object.
        devices: in the order of the allocation, possibly none.
        configs: all of ``status.allocation.devices.config``, unfiltered, so that positions are the API object's.
        reserved_for: the consumers, at least one.
    """

    ref: ClaimRef
    devices: tuple[ClaimedDevice, ...]
    configs: tuple[DeviceAllocationConfiguration, ...] = ()
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = field(default=())


def base_request(request: str) -> str:
    """``req`` of ``req`` and of ``req/sub``."""
    return request.partition("/")[0]


def claim_source(ref: ClaimRef) -> str:
    """How messages name a claim; by its UID when that is all we know."""
    return f"ResourceClaim {ref}" if ref.name else f"ResourceClaim with UID {ref.uid}"


def says_not_found(error: DraDriverError) -> bool:
    """True when an API answer means "there is no such object", as opposed to "can't tell"."""
    return getattr(error, "status", None) == 404


def read_allocation(ref: ClaimRef, claim: ResourceClaim, *, driver: str, pool: str) -> AllocatedClaim:
    """Check that the claim is the one that is asked for and is ours to prepare, and collect what it asks.

    Args:
        ref: as the kubelet names it.
        claim: as the API server has it now.
        driver: our driver name; other drivers' results are ignored.
        pool: the pool of this node; the only one whose devices we have.

    Raises:
        EnvironmentFault: the claim got replaced, is not allocated, is not reserved, or names another node's pool. The
            kubelet checks the first three before it calls; they fail here when a call was overtaken by events.
        InputError: the allocation contradicts itself.
    """
    source = claim_source(ref)
    if claim.metadata.uid != ref.uid:
        raise EnvironmentFault(
            f"{source} got replaced: the kubelet asks for UID {ref.uid}, the API server has UID {claim.metadata.uid}",
            hint="the Pod that used the old claim has to go before the new claim can be prepared",
        )
    allocation = claim.status.allocation
    if allocation is None:
        raise EnvironmentFault(
            f"{source} (UID {ref.uid}) is not allocated",
            hint="it was deallocated since the Pod was scheduled; delete the Pod so that it is scheduled again",
        )
    if not claim.status.reserved_for:
        raise EnvironmentFault(
            f"{source} (UID {ref.uid}) is allocated but reserved for nobody",
            hint="its Pod is gone or was never scheduled with it; nothing to do when the Pod was deleted",
        )
    merged: dict[tuple[str, str | None], list[RequestResult]] = {}
    for index, result in enumerate(allocation.devices.results):
        if result.driver != driver:
            continue
        if result.pool != pool:
            raise EnvironmentFault(
                f"{source}: request {result.request}: device {result.device} is in pool {result.pool!r}, but this node"
                f" has only pool {pool!r}",
                hint="the claim was allocated for another node; delete the Pod so that it is scheduled again",
                retryable=False,
            )
        if not result.request or not result.device:
            raise InputError(
                "request and device must not be empty",
                source=source,
                path=f"status.allocation.devices.results[{index}]",
            )
        entry = RequestResult(index, result.request, bool(result.admin_access))
        known = merged.setdefault((result.device, result.share_id), [])
        if all(other.request != entry.request or other.admin_access != entry.admin_access for other in known):
            known.append(entry)
    _refuse_mixed_shares(source, merged)
    devices = tuple(ClaimedDevice(pool, device, share, tuple(results)) for (device, share), results in merged.items())
    return AllocatedClaim(ref, devices, allocation.devices.config, claim.status.reserved_for)


def _refuse_mixed_shares(source: str, merged: Mapping[tuple[str, str | None], list[RequestResult]]) -> None:
    """A claim can't own a whole device and a share of the same device; observing one beside it is fine."""
    owned: dict[str, bool] = {}
    for (device, share), results in merged.items():
        if all(result.admin_access for result in results):
            continue
        if owned.setdefault(device, share is None) != (share is None):
            raise InputError(
                f"device {device} is allocated both as a whole and as a share",
                source=source,
                path=f"status.allocation.devices.results[{results[0].index}]",
                hint="delete the Pod so that the claim is allocated again",
            )
