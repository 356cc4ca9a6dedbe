"""Which opaque configuration applies to which device of a claim.

Candidates in rising precedence: the driver's built-in default (nothing), configuration of the DeviceClass,
configuration of the claim; within a source the later entry wins. Exactly one is chosen, nothing is merged. An entry
applies to the requests that it names, and to all when it names none; one that names ``req`` also covers ``req/sub``,
because the author of a prioritized list can't know which alternative the scheduler will take.

Every entry for our driver is decoded, also one that no device needs: a mistake is told at once, not on the day when
another alternative is allocated. Source: resource.k8s.io/v1 DeviceAllocationConfiguration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dra_driver.errors import InputError
from dra_driver.prepare.claim import AllocatedClaim, ClaimedDevice, RequestResult, claim_source
from dra_driver.prepare.kinds import ConfigurationKind

_SOURCES = {"FromClass": 0, "FromClaim": 1}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One decoded entry of ``status.allocation.devices.config`` for our driver.

    Attributes:
        index: position in the API object, for messages.
        source: ``FromClass`` or ``FromClaim``.
        requests: the requests it is for, empty for all.
        kind: how it was read.
        value: the decoded object.
    """

    index: int
    source: str
    requests: tuple[str, ...]
    kind: ConfigurationKind
    value: object

    def __str__(self) -> str:
        return f"{self.kind.kind} at status.allocation.devices.config[{self.index}] ({self.source})"

    @property
    def path(self) -> str:
        return f"status.allocation.devices.config[{self.index}].opaque.parameters"


def candidates(claim: AllocatedClaim, *, driver: str, kinds: Sequence[ConfigurationKind]) -> tuple[Candidate, ...]:
    """Decode our driver's entries and order them from the least to the most important.

    Raises:
        InputError: an entry can't be understood; names the claim and the field.
    """
    found: list[Candidate] = []
    for index, entry in enumerate(claim.configs):
        path = f"status.allocation.devices.config[{index}]"
        source = claim_source(claim.ref)
        if entry.opaque is None:
            raise InputError(
                "has no opaque parameters, the only kind of configuration that is known",
                source=source,
                path=path,
                hint="it may be meant for this driver, so it can't be skipped; a newer driver may know it",
            )
        if entry.opaque.driver != driver:
            continue
        if entry.source not in _SOURCES:
            raise InputError(
                f"unknown source {entry.source!r}, must be FromClass or FromClaim", source=source, path=f"{path}.source"
            )
        parameters = entry.opaque.parameters
        api_version, kind_name = parameters.get("apiVersion"), parameters.get("kind")
        kind = next((k for k in kinds if k.kind == kind_name and k.api_version == api_version), None)
        path += ".opaque.parameters"
        if kind is None:
            known = ", ".join(f"{k.api_version} {k.kind}" for k in kinds)
            field = ".apiVersion" if any(k.kind == kind_name for k in kinds) else ".kind"
            raise InputError(
                f"unknown configuration kind: apiVersion {api_version!r}, kind {kind_name!r} ({entry.source})",
                source=source,
                path=path + field,
                hint=f"driver {driver} knows: {known}",
            )
        value = kind.decode(parameters, source, path)
        found.append(Candidate(index, entry.source, entry.requests, kind, value))
    return tuple(sorted(found, key=lambda candidate: _SOURCES[candidate.source]))


def choose(
    claim: AllocatedClaim, device: ClaimedDevice, device_kind: str, configs: Iterable[Candidate]
) -> Candidate | None:
    """The configuration of one device; None means the built-in default.

    A device that serves several requests (one may observe, one may use) is configured as those requests say that use
    it; observing never changes a device.

    Raises:
        InputError: an entry names a request whose device it can't be applied to, or two requests of one device are
            configured differently.
    """
    ordered = tuple(configs)
    chosen: Candidate | None = None
    chosen_for: RequestResult | None = None
    for result in device.results:
        candidate = _choose_for_request(claim, device, result, device_kind, ordered)
        if result.admin_access and not device.admin_access:
            continue
        if chosen_for is not None and _value(candidate) != _value(chosen):
            raise InputError(
                f"device {device.device} serves requests {chosen_for.request} and {result.request}, which are"
                f" configured differently: {chosen or 'the default'} and {candidate or 'the default'}",
                source=claim_source(claim.ref),
                path="status.allocation.devices.config",
            )
        if chosen_for is None:
            chosen, chosen_for = candidate, result
    return chosen


def _value(candidate: Candidate | None) -> object:
    return candidate.value if candidate is not None else None


def _choose_for_request(
    claim: AllocatedClaim,
    device: ClaimedDevice,
    result: RequestResult,
    device_kind: str,
    ordered: Sequence[Candidate],
) -> Candidate | None:
    for candidate in reversed(ordered):
        fits = device_kind in candidate.kind.device_kinds
        if not candidate.requests:
            # Meant for "whatever is of this kind": a claim may carry one entry per kind of device its requests can get.
            if fits:
                return candidate
        elif result.request in candidate.requests or result.base_request in candidate.requests:
            if fits:
                return candidate
            raise InputError(
                f"{candidate.kind.kind} ({candidate.source}) can't be applied to device {device.device} of kind"
                f" {device_kind} of request {result.request}",
                source=claim_source(claim.ref),
                path=candidate.path,
                hint=f"it is for devices of kind {', '.join(sorted(candidate.kind.device_kinds))}",
            )
    return None
