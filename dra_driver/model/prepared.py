"""What the kubelet asks for and what it is answered, free of wire formats (KEP-4381, kubelet DRA v1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The identity of a claim as the kubelet names it; the UID decides, the name may be reused."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device made ready for a claim.

    Attributes:
        requests: base request names (``req``, never ``req/sub``) that this device satisfies.
        pool, device: as in the ResourceSlice.
        cdi_ids: fully qualified CDI names ``vendor/class=name``.
        share_id: for devices allocated several times (consumable capacity), else None.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None
