"""An API server in the test's own event loop, true to the parts of the contract that clients stumble over.

resourceVersions, generateName, uids, optimistic locking, no-op writes, deletion preconditions, paging with expiring
tokens, watches with bookmarks, chunking, expiry (410 as an ERROR event) and timeouts, dropped fields, dry runs,
managedFields. Faults are injected per request. `test_integration` runs the main scenarios against the real server.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from dra_driver.kube.config import ApiConfig, Credentials, NoCredentials

Json = dict[str, Any]

_PATH = re.compile(
    r"^(?P<root>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)
_KINDS = {
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "nodes": "Node",
    "pods": "Pod",
    "events": "Event",
    "namespaces": "Namespace",
}


@dataclass
class Fault:
    """What to do instead of, or before, answering the next ``times`` matching requests.

    Attributes:
        verb, path: HTTP method and a part of the path; empty matches all.
        status, headers, body: answer with these; ``None`` status answers normally.
        abort: break the connection without an answer and without doing anything.
        lose_answer: do what was asked, then break the connection instead of answering.
        delay: seconds before anything else.
    """

    verb: str = ""
    path: str = ""
    times: int = 1
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    abort: bool = False
    lose_answer: bool = False
    delay: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request as it came in; ``watch`` requests have verb WATCH."""

    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


class FakeApiServer:
    """Objects, an event log, and an HTTP server on a loopback port.

    Attributes:
        requests: all requests so far.
        faults: consumed in order by the requests they match.
        dropped: field names that are removed from every stored ``spec``, at any depth.
        accepted: values of the Authorization header that are let in; None lets everyone in.
        chunk: watch answers are cut into pieces of so many bytes.
        bookmark_every: seconds between bookmarks on a watch.
        version: ``gitVersion``.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.dropped: set[str] = set()
        self.accepted: set[str] | None = None
        self.chunk = 1 << 16
        self.bookmark_every = 60.0
        self.version = "v1.37.2"
        self.port = 0
        self._version = 100
        self._compacted = 0
        self._objects: dict[tuple[str, str], Json] = {}
        self._log: list[tuple[int, str, str, Json]] = []
        self._snapshots: dict[str, list[Json]] = {}
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._watches: set[asyncio.Task[Any]] = set()

    # -- running -------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def config(self, *, credentials: Credentials | None = None, request_timeout: float = 5.0) -> ApiConfig:
        return ApiConfig(
            server=self.url,
            source="fake",
            credentials=credentials or NoCredentials(),
            request_timeout=request_timeout,
        )

    async def start(self) -> None:
        """Listens; on the same port as before after a ``stop``. The objects stay."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        sockets: Any = site._server.sockets if isinstance(site._server, asyncio.Server) else ()
        self.port = sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuses connections and breaks the open ones."""
        self.break_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def break_watches(self) -> None:
        for task in self._watches:
            task.cancel()

    def compact(self) -> None:
        """Everything up to now can no longer be watched or paged."""
        self._compacted = self._version
        self._snapshots.clear()

    @property
    def watching(self) -> int:
        """Watches that are open."""
        return len(self._watches)

    def calls(self, verb: str, path: str = "") -> list[Request]:
        """Requests of that verb whose path contains ``path``."""
        return [r for r in self.requests if r.verb == verb and path in r.path]

    # -- objects -------------------------------------------------------------------------------------------------------

    def objects(self, plural: str) -> list[Json]:
        """Stored objects by name."""
        return [copy.deepcopy(o) for (p, _), o in sorted(self._objects.items()) if p == plural]

    def put(self, plural: str, obj: Json, *, manager: str = "somebody") -> Json:
        """Creates or replaces behind the client's back."""
        key = self._key(plural, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        old = self._objects.get(key)
        if old is None:
            return self._create(plural, copy.deepcopy(obj), manager)
        body = copy.deepcopy(obj)
        body["metadata"]["uid"] = old["metadata"]["uid"]
        body["metadata"].pop("resourceVersion", None)
        return self._replace(plural, key, body, manager)

    def remove(self, plural: str, name: str, namespace: str | None = None) -> None:
        """Deletes behind the client's back."""
        self._delete(plural, self._key(plural, namespace, name))

    @staticmethod
    def _key(plural: str, namespace: str | None, name: str) -> tuple[str, str]:
        return plural, f"{namespace}/{name}" if namespace else name

    def _next(self) -> str:
        self._version += 1
        return str(self._version)

    def _tell(self, kind: str, plural: str, obj: Json) -> None:
        self._log.append((int(obj["metadata"]["resourceVersion"]), kind, plural, copy.deepcopy(obj)))
        self._changed.set()
        self._changed = asyncio.Event()

    def _create(self, plural: str, body: Json, manager: str, *, dry: bool = False) -> Json:
        metadata = body["metadata"]
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName'][:58]}{uuid.uuid4().hex[:5]}"
        key = self._key(plural, metadata.get("namespace"), metadata["name"])
        if key in self._objects:
            raise _Refused(409, "AlreadyExists", f'{plural} "{metadata["name"]}" already exists')
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata["creationTimestamp"] = _now()
        metadata["generation"] = 1
        self._store(body, plural, manager)
        metadata["resourceVersion"] = self._next()
        if not dry:
            self._objects[key] = body
            self._tell("ADDED", plural, body)
        return copy.deepcopy(body)

    def _replace(self, plural: str, key: tuple[str, str], body: Json, manager: str, *, dry: bool = False) -> Json:
        old = self._objects.get(key)
        if old is None:
            raise _Refused(404, "NotFound", f'{plural} "{key[1]}" not found')
        given = body["metadata"].get("resourceVersion")
        uid = body["metadata"].get("uid")
        if (given and given != old["metadata"]["resourceVersion"]) or (uid and uid != old["metadata"]["uid"]):
            raise _Refused(
                409, "Conflict", "the object has been modified; please apply your changes to the latest version"
            )
        for name in ("uid", "creationTimestamp", "generation", "resourceVersion", "managedFields"):
            if name in old["metadata"]:
                body["metadata"][name] = old["metadata"][name]
        before = copy.deepcopy(body["metadata"].get("managedFields"))
        self._store(body, plural, manager)
        after, body["metadata"]["managedFields"] = body["metadata"]["managedFields"], before
        if body == old:
            return copy.deepcopy(old)  # nothing changes: no new version, no event
        body["metadata"]["managedFields"] = after
        if body.get("spec") != old.get("spec"):
            body["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if dry:
            return copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = self._next()
        self._objects[key] = body
        self._tell("MODIFIED", plural, body)
        return copy.deepcopy(body)

    def _store(self, body: Json, plural: str, manager: str) -> None:
        body.setdefault("kind", _KINDS[plural])
        if "spec" in body:
            _drop(body["spec"], self.dropped)
            devices = body["spec"].get("devices") if plural == "resourceslices" else None
            for device in devices or ():
                for taint in device.get("taints") or ():
                    taint.setdefault("timeAdded", _now())
        body["metadata"]["managedFields"] = [{"manager": manager, "operation": "Update", "time": _now()}]

    def _delete(self, plural: str, key: tuple[str, str], preconditions: Mapping[str, str] | None = None) -> Json:
        old = self._objects.get(key)
        if old is None:
            raise _Refused(404, "NotFound", f'{plural} "{key[1]}" not found')
        for name, wanted in (preconditions or {}).items():
            if old["metadata"][name] != wanted:
                raise _Refused(409, "Conflict", f"Precondition failed: {name} in precondition: {wanted}")
        del self._objects[key]
        gone = copy.deepcopy(old)
        gone["metadata"]["resourceVersion"] = self._next()
        self._tell("DELETED", plural, gone)
        return gone

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        verb = "WATCH" if query.get("watch") == "true" else request.method
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.requests.append(Request(verb, request.path, query, dict(request.headers), body))
        fault = self._next_fault(verb, request.path)
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.status is not None and not fault.abort:
            return web.Response(status=fault.status, headers=dict(fault.headers), text=fault.body)
        answer: web.StreamResponse = web.Response()
        if not fault.abort:
            answer = await self._obey(verb, request, query, body)
        if fault.abort or fault.lose_answer:
            assert request.transport is not None
            request.transport.abort()
        return answer

    def _next_fault(self, verb: str, path: str) -> Fault:
        for fault in self.faults:
            if fault.times > 0 and fault.verb in ("", verb) and fault.path in path:
                fault.times -= 1
                return fault
        return Fault()

    async def _obey(self, verb: str, request: web.Request, query: Mapping[str, str], body: Any) -> web.StreamResponse:
        if self.accepted is not None and request.headers.get("Authorization") not in self.accepted:
            return _status(401, "Unauthorized", "Unauthorized")
        if request.path == "/version":
            return web.json_response({"gitVersion": self.version})
        match = _PATH.match(request.path)
        if match is None or match["plural"] not in _KINDS:
            return _status(404, "NotFound", "the server could not find the requested resource")
        try:
            if verb == "WATCH":
                return await self._watch(request, match["plural"], match["namespace"], query)
            manager = request.headers.get("User-Agent", "").split("/")[0]
            return self._object_verb(verb, match, query, body, manager, request.content_type)
        except _Refused as refused:
            return _status(refused.code, refused.reason, str(refused))

    def _object_verb(
        self, verb: str, match: re.Match[str], query: Mapping[str, str], body: Any, manager: str, content_type: str
    ) -> web.Response:
        plural, name = match["plural"], match["name"]
        namespace = match["namespace"]
        dry = query.get("dryRun") == "All"
        if name is None:
            if verb == "GET":
                return self._list(plural, namespace, query)
            if verb == "POST":
                if namespace:
                    body["metadata"].setdefault("namespace", namespace)
                body.setdefault("apiVersion", match["root"].removeprefix("/apis/").removeprefix("/api/"))
                return web.json_response(self._create(plural, body, manager, dry=dry), status=201)
            if verb == "DELETE":
                for obj in list(self._select(self.objects(plural), namespace, query)):
                    self._delete(plural, self._key(plural, obj["metadata"].get("namespace"), obj["metadata"]["name"]))
                return web.json_response({"kind": "Status", "status": "Success"})
            return _status(405, "MethodNotAllowed", "the server does not allow this method")
        key = self._key(plural, namespace, name)
        if verb == "GET":
            if key not in self._objects:
                raise _Refused(404, "NotFound", f'{plural} "{name}" not found')
            return web.json_response(self._objects[key])
        if verb == "PUT":
            return web.json_response(self._replace(plural, key, body, manager, dry=dry))
        if verb == "PATCH":
            return web.json_response(self._patch(plural, key, body, query, manager, content_type))
        return web.json_response(self._delete(plural, key, (body or {}).get("preconditions")))

    def _patch(
        self, plural: str, key: tuple[str, str], body: Any, query: Mapping[str, str], manager: str, content_type: str
    ) -> Json:
        applied = content_type == "application/apply-patch+yaml"
        if content_type not in ("application/merge-patch+json", "application/apply-patch+yaml"):
            raise _Refused(415, "UnsupportedMediaType", f"{content_type} is not supported")
        if applied and not query.get("fieldManager"):
            raise _Refused(400, "BadRequest", "fieldManager is required for apply patch")
        old = self._objects.get(key)
        if old is None:
            if not applied:
                raise _Refused(404, "NotFound", f'{plural} "{key[1]}" not found')
            return self._create(plural, body, query["fieldManager"])
        merged = _merge(copy.deepcopy(old), body)
        return self._replace(plural, key, merged, query.get("fieldManager", manager))

    def _list(self, plural: str, namespace: str | None, query: Mapping[str, str]) -> web.Response:
        limit = int(query.get("limit", 0))
        token = query.get("continue")
        if token:
            version, _, start = token.partition("/")
            if token not in self._snapshots:
                raise _Refused(410, "Expired", "The provided continue parameter is too old")
            found, offset = self._snapshots[token], int(start)
        else:
            found, offset = list(self._select(self.objects(plural), namespace, query)), 0
            version = str(self._version)
        end = offset + limit if limit else len(found)
        metadata: Json = {"resourceVersion": version}
        if end < len(found):
            metadata["continue"] = f"{version}/{end}"
            metadata["remainingItemCount"] = len(found) - end
            self._snapshots[metadata["continue"]] = found
        items = [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in found[offset:end]]
        return web.json_response({"kind": _KINDS[plural] + "List", "metadata": metadata, "items": items or None})

    async def _watch(
        self, request: web.Request, plural: str, namespace: str | None, query: Mapping[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        reached = int(query["resourceVersion"])
        if reached < self._compacted:
            gone = {
                "kind": "Status",
                "code": 410,
                "reason": "Expired",
                "message": f"too old resource version: {reached}",
            }
            await self._send(response, {"type": "ERROR", "object": gone})
            return response
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        loop = asyncio.get_running_loop()
        end = loop.time() + float(query.get("timeoutSeconds", 300))
        bookmark = loop.time() + self.bookmark_every
        try:
            while loop.time() < end:
                changed = self._changed
                for version, kind, of, obj in [entry for entry in self._log if entry[0] > reached]:
                    reached = version
                    if of == plural and next(self._select([obj], namespace, query), None):
                        await self._send(response, {"type": kind, "object": obj})
                if query.get("allowWatchBookmarks") == "true" and loop.time() >= bookmark:
                    bookmark = loop.time() + self.bookmark_every
                    metadata = {"resourceVersion": str(self._version)}
                    await self._send(response, {"type": "BOOKMARK", "object": {"metadata": metadata}})
                try:
                    async with asyncio.timeout_at(min(end, bookmark)):
                        await changed.wait()
                except TimeoutError:
                    pass
        except asyncio.CancelledError:
            if request.transport is not None:
                request.transport.abort()
        except ConnectionResetError:
            pass  # the client left
        finally:
            self._watches.discard(task)
        return response

    async def _send(self, response: web.StreamResponse, event: Json) -> None:
        line = json.dumps(event).encode() + b"\n"
        for start in range(0, len(line), self.chunk):
            await response.write(line[start : start + self.chunk])

    @staticmethod
    def _select(found: list[Json], namespace: str | None, query: Mapping[str, str]) -> Iterator[Json]:
        terms = [term.split("=", 1) for term in query.get("fieldSelector", "").split(",") if term]
        labels = [term.split("=", 1) for term in query.get("labelSelector", "").split(",") if term]
        for obj in found:
            if namespace and obj["metadata"].get("namespace") != namespace:
                continue
            if all(_field(obj, path) == value for path, value in terms) and all(
                (obj["metadata"].get("labels") or {}).get(key) == value for key, value in labels
            ):
                yield obj


class _Refused(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(message)


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _field(obj: Json, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = (value or {}).get(part)
    return str(value or "")


def _drop(value: Any, names: set[str]) -> None:
    if isinstance(value, dict):
        for name in names & set(value):
            del value[name]
        for below in value.values():
            _drop(below, names)
    elif isinstance(value, list):
        for below in value:
            _drop(below, names)


def _merge(target: Json, patch: Json) -> Json:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value
    return target


async def until(condition: Callable[[], Any], *, seconds: float = 10.0) -> Any:
    """Lets the event loop run until ``condition`` is true and returns its value; the limit only ends a hanging test."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if value:
                return value
            await asyncio.sleep(0.005)
