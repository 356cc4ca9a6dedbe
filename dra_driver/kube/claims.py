"""Reads ResourceClaims; which claim it must be (its UID) is for the caller to check, who knows what follows from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from dra_driver.errors import DraDriverError
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import NotFound
from dra_driver.kube.resources import RESOURCE_CLAIMS
from dra_driver.model import codec
from dra_driver.model.prepared import ClaimRef
from dra_driver.model.resource import ResourceClaim
from dra_driver.model.strict_json import json_object


def _claim_json(body: bytes) -> Any:
    """Opaque parameters are stored as they were written, so a field that was written twice must not get lost here."""
    return json.loads(body, object_pairs_hook=json_object if b'"opaque"' in body else None)


class ClaimReader:
    """``timeout`` is in seconds for one claim with all repetitions; it must stay below the kubelet's 45 s per call."""

    def __init__(self, client: ApiClient, *, timeout: float = 20.0) -> None:
        self._client = client
        self._timeout = timeout

    async def get(self, ref: ClaimRef) -> ResourceClaim:
        """The claim of that namespace and name as it is now, whatever its UID.

        Raises:
            NotFound: there is none.
            ApiError: it could not be read.
            InputError: it is not a ResourceClaim that we understand.
        """
        raw = await self._client.get(
            RESOURCE_CLAIMS, ref.name, ref.namespace, timeout=self._timeout, decode=_claim_json
        )
        return codec.decode(ResourceClaim, raw, source=f"ResourceClaim {ref}")

    async def get_many(self, refs: Iterable[ClaimRef]) -> dict[str, ResourceClaim | DraDriverError]:
        """All claims at the same time, by the UID asked for; one that fails costs only itself."""
        wanted = list(refs)
        answers = await asyncio.gather(*(self._get_or_error(ref) for ref in wanted))
        return {ref.uid: answer for ref, answer in zip(wanted, answers, strict=True)}

    async def exists(self, ref: ClaimRef) -> bool:
        """Whether exactly this claim, by UID, is still there.

        Raises:
            ApiError: that could not be found out, which is not the same as no.
        """
        try:
            raw = await self._client.get(RESOURCE_CLAIMS, ref.name, ref.namespace, timeout=self._timeout)
        except NotFound:
            return False
        return bool(raw["metadata"].get("uid") == ref.uid)

    async def _get_or_error(self, ref: ClaimRef) -> ResourceClaim | DraDriverError:
        try:
            return await self.get(ref)
        except DraDriverError as error:
            return error
