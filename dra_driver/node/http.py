"""``/metrics``, ``/healthz`` and ``/readyz`` of the daemon.

``/healthz`` fails only when a restart would help (the event loop is the thing being asked, so an answer is most of it).
``/readyz`` names each condition that is not met, so that ``kubectl describe pod`` shows why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from dra_driver.errors import EnvironmentFault

Conditions = Callable[[], Mapping[str, str]]
"""Returns ``{condition: reason}`` for every condition that is not met; empty means all is well."""


class HttpServer:
    """Serves the three paths on one address.

    Args:
        host, port: empty host is all interfaces; port 0 picks a free one.
        healthy, ready: the conditions behind the two probes.
    """

    def __init__(
        self, host: str, port: int, *, registry: CollectorRegistry, healthy: Conditions, ready: Conditions
    ) -> None:
        self._host, self._port = host, port
        self._registry = registry
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            EnvironmentFault: the address can't be used.
        """
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        for path in self._probes:
            app.router.add_get(path, self._probe)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host or None, self._port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise EnvironmentFault(
                f"can't listen on {self._host}:{self._port} for metrics and probes: {error.strerror or error}",
                hint="choose another address with --http-address, or an empty one for none",
            ) from None
        addresses = self._runner.addresses
        return int(addresses[0][1]) if addresses else self._port

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _probe(self, request: web.Request) -> web.Response:
        unmet = self._probes[request.path]()
        if not unmet:
            return web.Response(text="ok\n")
        return web.Response(text="".join(f"{name}: {reason}\n" for name, reason in unmet.items()), status=503)
