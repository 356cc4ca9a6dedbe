"""The local copy of a set of objects, fed by lists, watch events and our own writes, in whatever order they arrive.

A write's answer is usually known before the watch reports it, and a list may have been taken before a write and
processed after it. A write of ours therefore stands until the stream has passed it, and what we deleted does not come
back through a late event. resourceVersions are compared for that, which is allowed within one resource (KEP-5504; every
server since 1.34 writes decimal numbers), and for nothing else: a server restored from a backup counts from lower ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Object = dict[str, Any]


def key_of(obj: Mapping[str, Any]) -> str:
    """``namespace/name``, or ``name`` for objects without a namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def version_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))


def uid_of(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("uid", ""))


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one object; ``object`` is the last known state of a deleted one."""

    kind: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Object
    previous: Object | None = None

    @property
    def key(self) -> str:
        return key_of(self.object)


class Store:
    """Latest known objects by ``namespace/name``."""

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        # By UID: our writes that the stream has not shown yet, and our deletions that it has not shown yet.
        self._written: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._seen = ""

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        """The objects in the order of their keys."""
        return iter([self._objects[key] for key in sorted(self._objects)])

    def get(self, key: str) -> Object | None:
        return self._objects.get(key)

    def replace(self, items: Iterable[Object], resource_version: str) -> list[Change]:
        """A complete list as of ``resource_version``: the changes it means, deletions that no event told included."""
        listed = {key_of(item): item for item in items}
        uids = {uid_of(item) for item in listed.values()}
        self._deleted &= uids
        self._written = {uid: wrote for uid, wrote in self._written.items() if _newer(wrote, resource_version)}
        self._seen = resource_version
        changes: list[Change] = []
        for key, known in list(self._objects.items()):
            if key not in listed and uid_of(known) not in self._written:
                del self._objects[key]
                changes.append(Change("DELETED", known))
        for item in listed.values():
            changes += self.put(item)
        return changes

    def put(self, obj: Object) -> list[Change]:
        """An ADDED or MODIFIED event, or one item of a list; nothing when it tells nothing new."""
        key, uid = key_of(obj), uid_of(obj)
        known = self._objects.get(key)
        if uid in self._deleted or _newer(self._written.get(uid, ""), version_of(obj)):
            return []
        self._written.pop(uid, None)
        if known is None:
            self._objects[key] = obj
            return [Change("ADDED", obj)]
        if version_of(known) == version_of(obj) and uid_of(known) == uid:
            return []
        self._objects[key] = obj
        if uid_of(known) != uid_of(obj):
            return [Change("DELETED", known), Change("ADDED", obj)]
        return [Change("MODIFIED", obj, known)]

    def remove(self, obj: Object) -> list[Change]:
        """A DELETED event."""
        self._deleted.discard(uid_of(obj))
        self._written.pop(uid_of(obj), None)
        known = self._objects.get(key_of(obj))
        if known is None or uid_of(known) != uid_of(obj):
            return []
        del self._objects[key_of(obj)]
        return [Change("DELETED", obj, known)]

    def seen(self, resource_version: str) -> None:
        """The stream has reached ``resource_version``."""
        self._seen = resource_version

    def wrote(self, stored: Object) -> None:
        """We created or updated it and this is the server's answer."""
        # The stream may have been there before the answer arrived, and may even have reported a deletion since.
        if _newer(version_of(stored), self._seen):
            self._objects[key_of(stored)] = stored
            self._written[uid_of(stored)] = version_of(stored)

    def deleted(self, obj: Object) -> None:
        """We deleted it; events still under way must not bring it back."""
        known = self._objects.get(key_of(obj))
        if known is not None and uid_of(known) == uid_of(obj):
            del self._objects[key_of(obj)]
            self._deleted.add(uid_of(obj))
            self._written.pop(uid_of(obj), None)


def _newer(left: str, right: str) -> bool:
    """Whether resourceVersion ``left`` is certainly newer than ``right``."""
    return left.isdecimal() and right.isdecimal() and int(left) > int(right)
