"""The gRPC health protocol, for a Pod's ``grpc:`` probes and grpc_health_probe.

A probe asks for a service name; each has a check that says what is wrong, or nothing. The reason goes to the log,
since the protocol has no place for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import grpc

from dra_driver.errors import DraDriverError, EnvironmentFault
from dra_driver.kubelet.pb import grpc_health_v1_pb2
from dra_driver.kubelet.wire import Context, new_server, rpc_handler, service

logger = logging.getLogger(__name__)

# None: serving; else what is wrong.
Check = Callable[[], Awaitable[str | None]]

_Response = grpc_health_v1_pb2.HealthCheckResponse
_WATCH_SECONDS = 5.0


class GrpcHealthServer:
    """Serves ``grpc.health.v1.Health`` on an address of its own.

    Args:
        address: ``host:port`` or ``unix:<path>``; port 0 takes a free one, see ``port``.
        checks: by service name; ``""`` is the process as a whole.
        watch_seconds: how often a watched service is checked.
    """

    def __init__(self, address: str, checks: Mapping[str, Check], *, watch_seconds: float = _WATCH_SECONDS) -> None:
        self._address = address
        self._checks = dict(checks)
        self._watch_seconds = watch_seconds
        self._last: dict[str, str | None] = {}
        self._stopping = asyncio.Event()
        handler = rpc_handler(
            service(grpc_health_v1_pb2.DESCRIPTOR, "Health"),
            {"Check": self._check, "Watch": self._watch},
            served_as="grpc.health.v1.Health",
        )
        self._server = new_server([handler])
        self.port = 0

    async def start(self) -> None:
        """Serves.

        Raises:
            EnvironmentFault: the address can't be had.
        """
        try:
            self.port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise EnvironmentFault(
                f"gRPC health can't be served on {self._address}: {error}", hint="is the port in use on this node?"
            ) from error
        await self._server.start()

    async def stop(self) -> None:
        """Ends watches and serves no more."""
        self._stopping.set()
        await self._server.stop(1.0)

    async def _check(self, request: grpc_health_v1_pb2.HealthCheckRequest, context: Context) -> _Response:
        if request.service not in self._checks:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return _Response(status=await self._status(request.service))

    async def _watch(
        self, request: grpc_health_v1_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[_Response]:
        del context
        sent = None
        while not self._stopping.is_set():
            known = request.service in self._checks
            status = await self._status(request.service) if known else _Response.SERVICE_UNKNOWN
            if status != sent:
                sent = status
                yield _Response(status=status)
            try:
                async with asyncio.timeout(self._watch_seconds):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _status(self, name: str) -> grpc_health_v1_pb2.HealthCheckResponse.ServingStatus.ValueType:
        try:
            problem = await self._checks[name]()
        except DraDriverError as error:
            problem = str(error)
        except Exception:
            logger.exception("the check of service %r failed", name)
            problem = "the check itself failed"
        if problem != self._last.get(name):
            logger.info("service %r: %s", name, problem or "serving")
            self._last[name] = problem
        return _Response.SERVING if problem is None else _Response.NOT_SERVING
