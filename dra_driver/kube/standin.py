"""A stand-in for the API server, for ``dra-driver demo`` on a machine without Kubernetes.

It stores objects, gives them UIDs and resource versions, and answers get, list, watch, create, update and
delete; there is no validation, no admission and no authentication. Whether the driver works with an API server is
proved by the tests with the real one, not with this.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Callable
from typing import Any

from aiohttp import web

Object = dict[str, Any]


class ApiServerStandIn:
    """Use it as an async context manager; serves plain HTTP on a free port of 127.0.0.1.

    Attributes:
        objects: everything stored, by request path.
        url: where it listens, once entered.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.url = ""
        self._versions = itertools.count(1)
        self._events: list[tuple[int, str, str, Object]] = []
        self._changed = asyncio.Condition()
        self._closing = False
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> ApiServerStandIn:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._closing = True
        async with self._changed:
            self._changed.notify_all()
        assert self._runner is not None
        await self._runner.cleanup()

    async def add(self, collection: str, obj: Object) -> Object:
        """Store an object under the path of its collection, e.g. ``/api/v1/nodes``."""
        metadata = dict(obj.get("metadata") or {})
        if not metadata.get("name"):
            metadata["name"] = metadata.get("generateName", "object-") + uuid.uuid4().hex[:5]
        metadata.setdefault("uid", str(uuid.uuid4()))
        return await self._store(f"{collection}/{metadata['name']}", {**obj, "metadata": metadata}, "ADDED")

    async def wait_for(self, found: Callable[[dict[str, Object]], bool]) -> None:
        """Wait until the stored objects fulfil a condition."""
        async with self._changed:
            await self._changed.wait_for(lambda: found(self.objects))

    def items(self, collection: str) -> list[Object]:
        prefix = collection.rstrip("/") + "/"
        return [obj for path, obj in self.objects.items() if path.startswith(prefix)]

    async def _store(self, path: str, obj: Object, kind: str) -> Object:
        version = next(self._versions)
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        async with self._changed:
            if kind == "DELETED":
                self.objects.pop(path, None)
            else:
                self.objects[path] = stored
            self._events.append((version, kind, path, stored))
            self._changed.notify_all()
        return stored

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if request.method == "GET" and request.query.get("watch"):
            return await self._watch(request, path)
        existing = self.objects.get(path)
        if request.method == "POST":
            return web.json_response(await self.add(path, await request.json()), status=201)
        if existing is None:
            if request.method == "GET" and _is_collection(path):
                items = self.items(path)
                version = str(self._events[-1][0] if self._events else 0)
                return web.json_response({"kind": "List", "metadata": {"resourceVersion": version}, "items": items})
            return web.json_response(_status(404, "NotFound", f"{path} not found"), status=404)
        if request.method == "PUT":
            return web.json_response(await self._store(path, await request.json(), "MODIFIED"))
        if request.method == "DELETE":
            return web.json_response(await self._store(path, existing, "DELETED"))
        return web.json_response(existing)

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        seen = int(request.query.get("resourceVersion") or 0)
        while not self._closing:
            for version, kind, _, obj in await self._news(seen, path):
                seen = version
                await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
        return response

    async def _news(self, version: int, collection: str) -> list[tuple[int, str, str, Object]]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._closing or self._after(version, collection))
            return self._after(version, collection)

    def _after(self, version: int, collection: str) -> list[tuple[int, str, str, Object]]:
        return [event for event in self._events if event[0] > version and event[2].startswith(collection + "/")]


def _is_collection(path: str) -> bool:
    """``/api/v1/nodes`` and ``…/namespaces/NS/pods`` are, ``/api/v1/nodes/a`` is not."""
    parts = path.strip("/").split("/")
    below = parts[2:] if parts[0] == "api" else parts[3:]
    return len(below) % 2 == 1


def _status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
