"""Keeps a ``Store`` equal to the API server's objects: list once, then watch, for as long as the task runs.

A watch that ends, breaks or meets a restarting server continues from the last seen resourceVersion (bookmarks keep it
fresh while nothing changes). When that has expired, or the server answers anything unexpected, the objects are listed
again and the difference is reported, so that no deletion is lost. Waits between tries are jittered, at most 30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from dra_driver.errors import EnvironmentFault
from dra_driver.kube.backoff import Backoff
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import ApiError, Gone
from dra_driver.kube.resources import Resource
from dra_driver.kube.store import Change, Store
from dra_driver.kube.watch import WatchEvent

_LOG = logging.getLogger(__name__)

# A watch that ended without an event and sooner than this counts as failed: a broken proxy must not cause a busy loop.
_SHORT_WATCH = 1.0
_KEEP_RESUMING = frozenset({0, 429, 503})


class Reflector:
    """List and watch of one resource with fixed selectors.

    Args:
        on_change: called for every change, in order, from the task of ``run``; it must not block.
        on_error: called with each failed list or watch and the seconds until the next try.

    Attributes:
        store: the objects.
        synced: set once the first list is in ``store``.
        last_error: of the latest try, None after a success.
        relists: how often the objects were listed.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str | None = None,
        label_selector: str | None = None,
        on_change: Callable[[Change], None] | None = None,
        on_error: Callable[[EnvironmentFault, float], None] | None = None,
        backoff: Backoff | None = None,
        watch_seconds: int = 300,
    ) -> None:
        self.store = Store()
        self.synced = asyncio.Event()
        self.last_error: EnvironmentFault | None = None
        self.relists = 0
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._on_change = on_change
        self._on_error = on_error
        self._backoff = backoff or Backoff(0.25, 30.0)
        self._watch_seconds = watch_seconds
        self._resume: str | None = None

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                if self._resume is None:
                    await self._list()
                lively = await self._watch()
            except EnvironmentFault as error:
                self.last_error = error
                status = error.status if isinstance(error, ApiError) else 0
                if status not in _KEEP_RESUMING:
                    self._resume = None
                if isinstance(error, Gone) and self._backoff.failures == 0:
                    # Expired is ordinary after a pause; list again at once, but only once in a row.
                    self._backoff.next()
                    continue
                await self._pause(error)
            else:
                if lively:
                    self._backoff.reset()
                else:
                    await self._pause(None)

    async def _list(self) -> None:
        listed = await self._client.list(
            self._resource,
            self._namespace,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
        )
        self.relists += 1
        changes = self.store.replace(listed.items, listed.resource_version)
        self._resume = listed.resource_version
        self.last_error = None
        self.synced.set()
        self._report(changes)

    async def _watch(self) -> bool:
        """Follows one watch to its end; False when it was suspiciously short."""
        now = asyncio.get_running_loop().time
        began = now()
        assert self._resume is not None
        stream = self._client.watch(
            self._resource,
            self._namespace,
            resource_version=self._resume,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            timeout_seconds=self._watch_seconds,
            on_open=self._opened,
        )
        events = 0
        async with contextlib.aclosing(stream):
            async for event in stream:
                events += 1
                self._backoff.reset()
                self._apply(event)
        return events > 0 or now() - began >= _SHORT_WATCH

    def _opened(self) -> None:
        self.last_error = None

    def _apply(self, event: WatchEvent) -> None:
        if event.type in ("ADDED", "MODIFIED"):
            self._report(self.store.put(event.object))
        elif event.type == "DELETED":
            self._report(self.store.remove(event.object))
        self._resume = event.resource_version
        self.store.seen(self._resume)

    def _report(self, changes: list[Change]) -> None:
        if self._on_change is not None:
            for change in changes:
                self._on_change(change)

    async def _pause(self, error: EnvironmentFault | None) -> None:
        delay = self._backoff.next()
        if error is not None:
            level = logging.WARNING if self._backoff.failures > 1 else logging.INFO
            _LOG.log(level, "watching %s: %s; next try in %.1f s", self._resource.plural, error, delay)
            if self._on_error is not None:
                self._on_error(error, delay)
        await asyncio.sleep(delay)
