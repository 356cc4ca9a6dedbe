"""Kubernetes' verbs on raw JSON objects: get, list, create, update, patch, delete, watch.

Objects are plain dicts, since a GET is on the path of every prepared claim and most callers want a few fields. There is
no client-side throttle; a server that wants less says so with 429, and is obeyed.

Repeating is decided here, once, for all callers. Within the caller's time limit a request is repeated
- when the server asks for it (429, or 5xx with Retry-After): nothing was processed, any verb;
- when no connection came about: nothing was sent, any verb;
- when the connection broke or 5xx came back: only verbs that may be repeated safely (get, list, delete);
- once after 401, with credentials read again.
Everything else goes to the caller at once. Below that, aiohttp sends get, put and delete a second time when a kept
connection turns out to be closed; a put that had arrived then answers Conflict, which writers have to expect anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlencode

from dra_driver.kube.answers import Object, api_list, api_object
from dra_driver.kube.backoff import Backoff
from dra_driver.kube.config import ApiConfig
from dra_driver.kube.errors import ApiError, Conflict, Gone, TooManyRequests, Unauthorized, Unavailable
from dra_driver.kube.resources import Resource
from dra_driver.kube.transport import USER_AGENT, Transport
from dra_driver.kube.watch import LineSplitter, WatchEvent, parse

PatchType = Literal["merge", "json", "strategic", "apply"]

_PATCH_CONTENT_TYPES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_SAFE_TO_REPEAT = frozenset({"get", "list", "delete"})
_MAX_TRIES = 10
_WATCH_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A complete list as of ``resource_version``, which is where a watch continues."""

    items: tuple[Object, ...]
    resource_version: str


class ApiClient:
    """One API server as one user; usable from one event loop, closed by ``close`` or ``async with``.

    All verbs raise ``dra_driver.kube.errors.ApiError``; ``timeout`` is in seconds for the whole call with its
    repetitions, ``config.request_timeout`` when None.
    """

    def __init__(self, config: ApiConfig, *, user_agent: str = USER_AGENT) -> None:
        self.config = config
        self._transport = Transport(config, user_agent)

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._transport.close()

    async def raw(self, path: str, *, timeout: float | None = None) -> Any:
        """GET of a path that is no resource and answers JSON, e.g. ``/version``."""
        return await self._request("get", path, timeout=timeout)

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        timeout: float | None = None,
        decode: Callable[[bytes], Any] = json.loads,
    ) -> Object:
        """The object as it is now (a quorum read). ``decode`` may parse the body in its own way."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return api_object(await self._request("get", path, timeout=timeout, decode=decode), verb="get", path=path)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str | None = None,
        label_selector: str | None = None,
        resource_version: str | None = None,
        limit: int = 500,
        timeout: float | None = None,
    ) -> ObjectList:
        """All matching objects, fetched in pages of ``limit``, each with its kind and apiVersion filled in.

        A list that takes longer than the server keeps its snapshot starts over without pages.
        """
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        deadline = self._deadline(timeout)
        try:
            query = {**selectors, "resourceVersion": resource_version, "limit": str(limit) if limit else None}
            return await self._pages(resource, namespace, query, deadline)
        except Gone:
            if not limit:
                raise
            return await self._pages(resource, namespace, selectors, deadline)

    async def _pages(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str | None], deadline: float
    ) -> ObjectList:
        path = resource.path(namespace=namespace)
        items: list[Object] = []
        token: str | None = None
        while True:
            page_query = dict(query) if token is None else {**query, "resourceVersion": None, "continue": token}
            page = await self._request("list", _with_query(path, page_query), deadline=deadline)
            page_items, metadata = api_list(page, verb="list", path=path)
            items += page_items
            token = metadata.get("continue")
            if not token:
                break
        for item in items:  # lists leave these out of their items
            item.setdefault("kind", resource.kind)
            item.setdefault("apiVersion", resource.api_version)
        return ObjectList(tuple(items), metadata["resourceVersion"])

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        name: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """POST; returns what was stored. ``name`` with ``subresource`` for e.g. ``serviceaccounts/NAME/token``."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        named = any(body.get("metadata", {}).get(key) for key in ("name", "generateName"))
        answer = await self._request("post", path, body=body, timeout=timeout)
        return api_object(answer, verb="post", path=path, stored=named and subresource is None)

    async def update(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Object:
        """PUT of an object that was read before; Conflict when its resourceVersion is no longer the stored one.

        ``dry_run`` answers what would be stored, and stores nothing.
        """
        metadata = body["metadata"]
        path = resource.path(metadata["name"], namespace=metadata.get("namespace"), subresource=subresource)
        path = _with_query(path, {"dryRun": "All" if dry_run else None})
        return api_object(await self._request("put", path, body=body, timeout=timeout), verb="put", path=path)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        namespace: str | None = None,
        *,
        kind: PatchType = "merge",
        field_manager: str | None = None,
        force: bool = False,
        subresource: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """PATCH; ``apply`` is server-side apply and needs ``field_manager``, ``force`` takes fields from others."""
        query = {"fieldManager": field_manager, "force": "true" if force else None}
        path = _with_query(resource.path(name, namespace=namespace, subresource=subresource), query)
        answer = await self._request("patch", path, body=body, content_type=_PATCH_CONTENT_TYPES[kind], timeout=timeout)
        return api_object(answer, verb="patch", path=path)

    async def modify(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        change: Callable[[Object], Object | None],
        *,
        subresource: str | None = None,
        tries: int = 5,
        timeout: float | None = None,
    ) -> Object:
        """Read, change, write; read again when somebody else wrote in between.

        Args:
            change: gets the object as read and returns it changed, or None when there is nothing to write.
        """
        backoff = Backoff(0.01, 1.0)
        deadline = self._deadline(timeout)
        path = resource.path(name, namespace=namespace)
        target = resource.path(name, namespace=namespace, subresource=subresource)
        while True:
            found = api_object(await self._request("get", path, deadline=deadline), verb="get", path=path)
            changed = change(found)
            if changed is None:
                return found
            try:
                stored = await self._request("put", target, body=changed, deadline=deadline)
            except Conflict:
                if backoff.failures + 1 >= tries:
                    raise
            else:
                return api_object(stored, verb="put", path=target)
            await asyncio.sleep(backoff.next())

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """DELETE; with ``uid`` or ``resource_version`` only exactly that object (Conflict otherwise)."""
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v is not None}
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            body["preconditions"] = preconditions
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            body["propagationPolicy"] = propagation
        path = resource.path(name, namespace=namespace)
        answer = await self._request("delete", path, body=body, timeout=timeout)
        return api_object(answer, verb="delete", path=path, stored=False)  # the object, or a Status

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str | None = None,
        label_selector: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """DELETE of all matching objects; without selectors of all there are."""
        query = {"fieldSelector": field_selector, "labelSelector": label_selector}
        await self._request("delete", _with_query(resource.path(namespace=namespace), query), timeout=timeout)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        field_selector: str | None = None,
        label_selector: str | None = None,
        bookmarks: bool = True,
        timeout_seconds: int = 300,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after ``resource_version``; ends when the server ends it, normally after ``timeout_seconds``.

        ``on_open`` is called when the server has accepted the watch, which may be long before the first event.

        Raises:
            Gone: ``resource_version`` is too old, list again.
            Unavailable: the connection broke; watch again from the last event's resourceVersion.
        """
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true" if bookmarks else None,
            "timeoutSeconds": str(timeout_seconds),
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        path = _with_query(resource.path(namespace=namespace), query)
        fresh = True
        while True:
            lines = LineSplitter()
            try:
                stream = self._transport.stream(path, idle_timeout=timeout_seconds + _WATCH_GRACE)
                async with contextlib.aclosing(stream):
                    async for chunk in stream:
                        if not chunk and on_open is not None:
                            on_open()
                        for line in lines.feed(chunk):
                            yield parse(line, path)
            except Unauthorized:
                if not fresh or not await self._transport.rejected():
                    raise
                fresh = False
            else:
                return

    def _deadline(self, timeout: float | None) -> float:
        return asyncio.get_running_loop().time() + (self.config.request_timeout if timeout is None else timeout)

    async def _request(
        self,
        verb: str,
        path: str,
        *,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
        deadline: float | None = None,
        decode: Callable[[bytes], Any] = json.loads,
    ) -> Any:
        now = asyncio.get_running_loop().time
        end = self._deadline(timeout) if deadline is None else deadline
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        kind = None if body is None else content_type
        backoff = Backoff(0.05, 2.0)
        renewed = False
        while True:
            try:
                # A limit of zero would mean none to aiohttp.
                limit = max(end - now(), 0.001)
                return await self._transport.exchange(
                    verb, path, data=data, content_type=kind, timeout=limit, decode=decode
                )
            except Unauthorized:
                if renewed or not await self._transport.rejected():
                    raise
                renewed = True
            except (TooManyRequests, Unavailable) as error:
                delay = _pause(error, verb, backoff)
                if delay is None or backoff.failures >= _MAX_TRIES or now() + delay >= end:
                    raise
                await asyncio.sleep(delay)


def _pause(error: ApiError, verb: str, backoff: Backoff) -> float | None:
    """Seconds until the request may be sent again, None when it must not be."""
    delay = backoff.next()
    if error.status:
        if error.retry_after is not None:
            return error.retry_after + delay
        repeat = error.status == 429 or (verb in _SAFE_TO_REPEAT and error.status >= 500)
    else:
        repeat = error.reason == "NotConnected" or (verb in _SAFE_TO_REPEAT and error.reason == "ConnectionLost")
    return delay if repeat else None


def _with_query(path: str, query: Mapping[str, str | None]) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
