"""Records core/v1 Events on Pods, claims and Nodes without ever slowing down or failing what they tell about.

``record`` only puts the event into a bounded queue; ``run`` writes. Repetitions of the same object, reason and message
within ten minutes become a count on one Event, and each object has a budget, as in client-go, so that a loop cannot
flood the API server. What is not written is counted. Source: k8s.io/client-go/tools/record.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from dra_driver.errors import DraDriverError
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import NotFound
from dra_driver.kube.resources import EVENTS

_LOG = logging.getLogger(__name__)

_QUEUE = 256
_REMEMBERED = 1024
_AGGREGATE_SECONDS = 600.0
_BURST = 25.0
_REFILL_SECONDS = 300.0
_MAX_MESSAGE = 1024
"""Longest ``message`` the API server accepts for an Event."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object an Event is about (core/v1 ObjectReference)."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"

    def encode(self) -> dict[str, str]:
        full = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {key: value for key, value in full.items() if value}


@dataclass(frozen=True, slots=True)
class _Record:
    regarding: ObjectReference
    type: str
    reason: str
    message: str
    at: float


@dataclass(slots=True)
class _Known:
    """An Event that exists on the server and may be counted up."""

    name: str
    namespace: str
    count: int
    last: float


@dataclass(slots=True)
class _Budget:
    tokens: float = _BURST
    at: float = field(default=0.0)


class EventRecorder:
    """One source of Events.

    Args:
        component: program that reports, e.g. ``dra-driver``.
        node_name: node it runs on; the host's name when empty.
        wall_clock: seconds since the epoch.

    Attributes:
        written: Events created or counted up on the server.
        dropped: Events not written, by cause: ``queue-full``, ``rate``, ``error``.
    """

    def __init__(
        self,
        client: ApiClient,
        component: str = "dra-driver",
        node_name: str = "",
        *,
        wall_clock: Callable[[], float] = time.time,
        timeout: float = 10.0,
    ) -> None:
        self.written = 0
        self.dropped = {"queue-full": 0, "rate": 0, "error": 0}
        self._client = client
        self._component = component
        self._host = node_name or socket.gethostname()
        self._wall_clock = wall_clock
        self._timeout = timeout
        self._queue: asyncio.Queue[_Record] = asyncio.Queue(_QUEUE)
        self._known: OrderedDict[tuple[ObjectReference, str, str, str], _Known] = OrderedDict()
        self._budgets: OrderedDict[ObjectReference, _Budget] = OrderedDict()

    def record(self, regarding: ObjectReference, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Queues one Event; returns at once and never raises for what the API server does.

        Args:
            reason: short CamelCase word, the machine's part of it.
            message: for people; cut at the API's 1024 characters.
        """
        record = _Record(regarding, kind, reason, message[:_MAX_MESSAGE], self._wall_clock())
        if not self._within_budget(record):
            self._drop("rate", record)
            return
        try:
            self._queue.put_nowait(record)
        except asyncio.QueueFull:
            self._drop("queue-full", record)

    async def run(self) -> None:
        """Writes queued Events until cancelled."""
        while True:
            record = await self._queue.get()
            try:
                await self._write(record)
                self.written += 1
            except DraDriverError as error:  # credentials that can't be read are no answer of the server
                self._drop("error", record, error)
            finally:
                self._queue.task_done()

    async def flush(self, timeout: float = 5.0) -> None:
        """Waits until the queue is written (``run`` must be running), at most ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            _LOG.warning("%d Events were not written in time", self._queue.qsize())

    def _within_budget(self, record: _Record) -> bool:
        budget = self._budgets.setdefault(record.regarding, _Budget(at=record.at))
        self._budgets.move_to_end(record.regarding)
        if len(self._budgets) > _REMEMBERED:
            self._budgets.popitem(last=False)
        budget.tokens = min(_BURST, budget.tokens + max(0.0, record.at - budget.at) / _REFILL_SECONDS)
        budget.at = record.at
        if budget.tokens < 1.0:
            return False
        budget.tokens -= 1.0
        return True

    async def _write(self, record: _Record) -> None:
        key = (record.regarding, record.type, record.reason, record.message)
        known = self._known.get(key)
        if known is not None and record.at - known.last <= _AGGREGATE_SECONDS:
            known.count += 1
            known.last = record.at
            patch = {"count": known.count, "lastTimestamp": _timestamp(record.at)}
            try:
                await self._client.patch(EVENTS, known.name, patch, known.namespace, timeout=self._timeout)
            except NotFound:  # Events live an hour; this one is gone
                del self._known[key]
            else:
                self._known.move_to_end(key)
                return
        namespace = record.regarding.namespace or "default"
        body = self._event(record, namespace)
        await self._client.create(EVENTS, body, namespace, timeout=self._timeout)
        self._known[key] = _Known(body["metadata"]["name"], namespace, 1, record.at)
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _event(self, record: _Record, namespace: str) -> dict[str, Any]:
        stamp = _timestamp(record.at)
        # client-go's scheme; the name of the object is cut so that the whole stays a valid object name.
        name = f"{record.regarding.name[:230].rstrip('.-')}.{time.time_ns():x}"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": record.regarding.encode(),
            "type": record.type,
            "reason": record.reason,
            "message": record.message,
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def _drop(self, cause: str, record: _Record, error: DraDriverError | None = None) -> None:
        self.dropped[cause] += 1
        _LOG.log(
            logging.WARNING if error else logging.DEBUG,
            "Event %s on %s %s/%s was not written (%s): %s",
            record.reason,
            record.regarding.kind,
            record.regarding.namespace,
            record.regarding.name,
            cause,
            error or record.message,
        )


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
