"""Contents that the API server accepts but does not store whole, and when it is worth to send them again.

A server whose feature gate is off drops the gate's fields silently. Sending them with every look at the slices would be
an endless loop of writes; never sending them again would miss the server's upgrade. So the pair (sent, stored) is
remembered per slice, and a dry run asks again when the server's version changed or an hour has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import EnvironmentFault
from dra_driver.kube.client import ApiClient
from dra_driver.kube.publish_state import DroppedFields
from dra_driver.kube.resources import RESOURCE_SLICES
from dra_driver.kube.slice_content import Difference, differences, same, with_times
from dra_driver.kube.store import Store

_LOG = logging.getLogger(__name__)

Object = dict[str, Any]
Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Reduced:
    sent: Content
    stored: Content
    found: tuple[Difference, ...]
    name: str


class ReducedSlices:
    """By slice index; ``retry_every`` in seconds, all times are the event loop's."""

    def __init__(self, retry_every: float) -> None:
        self._retry_every = retry_every
        self._by_index: dict[int, _Reduced] = {}
        self._tried_at = 0.0
        self._server_version: str | None = None

    def compare(self, index: int, content: Content, body: Object, stored: Object, now: float) -> None:
        """Notes how ``stored``, the server's answer to ``body``, deviates from it."""
        found = tuple(differences(body["spec"], stored["spec"]))
        if found:
            self._by_index[index] = _Reduced(content, stored["spec"], found, str(stored["metadata"]["name"]))
            self._tried_at = now
        else:
            self._by_index.pop(index, None)

    def is_known(self, index: int, content: Content, existing: Object) -> bool:
        """Whether ``existing`` is what the server makes of ``content``."""
        reduced = self._by_index.get(index)
        return reduced is not None and reduced.sent == content and same(reduced.stored, existing["spec"])

    def keep_only(self, contents: Sequence[Content]) -> None:
        """Forgets contents that are no longer published."""
        self._by_index = {
            index: reduced
            for index, reduced in self._by_index.items()
            if index < len(contents) and reduced.sent == contents[index]
        }

    def dropped(self) -> DroppedFields | None:
        """What is not stored at the moment, None when everything is."""
        found = tuple((self._by_index[i].name, self._by_index[i].found) for i in sorted(self._by_index))
        return DroppedFields(found) if found else None

    async def ask_again(self, client: ApiClient, store: Store, now: float) -> None:
        """Forgets contents that the server would store differently by now, so that they are written once more.

        Raises:
            EnvironmentFault: the server could not be asked.
        """
        if not self._by_index:
            return
        version = str((await client.raw("/version")).get("gitVersion"))
        known, self._server_version = self._server_version, version
        if known in (None, version) and now - self._tried_at < self._retry_every:
            return
        self._tried_at = now
        for index, reduced in list(self._by_index.items()):
            existing = store.get(reduced.name)
            if existing is None:
                continue
            spec: Mapping[str, Any] = {**with_times(reduced.sent, existing["spec"]), "pool": existing["spec"]["pool"]}
            try:
                answer = await client.update(RESOURCE_SLICES, {**existing, "spec": spec}, dry_run=True)
            except EnvironmentFault as error:
                _LOG.info("trying dropped fields of ResourceSlice %s again: %s", reduced.name, error)
                continue
            if not same(answer["spec"], reduced.stored):
                del self._by_index[index]
