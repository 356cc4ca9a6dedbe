"""``/metrics``, ``/healthz`` and ``/readyz`` of the daemon.

The standard library's server in a thread of its own: a web framework for three paths would cost 2 MiB, and a probe
that is served outside the event loop can tell when the loop itself is stuck, which is what ``/healthz`` is for.
``/readyz`` names each condition that is not met. The kubelet keeps a probe's answer to itself (its event has the status
code alone), so what the probes are told is also logged when it changes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from dra_driver.errors import EnvironmentFault

Conditions = Callable[[], Mapping[str, str]]
"""Returns ``{condition: reason}`` for every condition that is not met; empty means all is well."""

log = logging.getLogger(__name__)

_FIGURES = re.compile(r"\d+")
"""A reason that differs in how long something has lasted is the same reason."""

LOOP_SECONDS = 5.0
"""An event loop that does not answer within this time is stuck."""


class HttpServer:
    """Serves the three paths on one address.

    Args:
        host, port: empty host is all interfaces; port 0 picks a free one.
        ready: the conditions behind ``/readyz``, asked in the event loop.
    """

    def __init__(self, host: str, port: int, *, registry: CollectorRegistry, ready: Conditions) -> None:
        self._address = host, port
        self._registry = registry
        self._ready = ready
        self._told: str | None = None
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            EnvironmentFault: the address can't be used.
        """
        loop = asyncio.get_running_loop()
        host, port = self._address

        class Handler(_Handler):
            answers: ClassVar = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
            event_loop = loop

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = _family(host)

            def server_bind(self) -> None:
                if self.address_family == socket.AF_INET6 and not host:
                    self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                super().server_bind()

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise EnvironmentFault(
                f"can't listen on {host}:{port} for metrics and probes: {error.strerror or error}",
                hint="choose another address with --http-address, or an empty one for none",
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.25,), name="http", daemon=True)
        self._thread.start()
        return int(self._server.server_address[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None and self._thread is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()

    def _metrics(self, accept: str) -> tuple[int, str, bytes]:
        encode, content_type = choose_encoder(accept)
        return 200, content_type, encode(self._registry)

    def _healthz(self, accept: str) -> tuple[int, str, bytes]:
        return 200, "text/plain; charset=utf-8", b"ok\n"

    def _readyz(self, accept: str) -> tuple[int, str, bytes]:
        unmet = self._ready()
        self._log_changes(unmet)
        text = "".join(f"{name}: {reason}\n" for name, reason in unmet.items()) or "ok\n"
        return 503 if unmet else 200, "text/plain; charset=utf-8", text.encode()

    def _log_changes(self, unmet: Mapping[str, str]) -> None:
        told = _FIGURES.sub("", str(dict(unmet)))
        if told == self._told:
            return
        self._told = told
        if unmet:
            log.warning("not ready: %s", "; ".join(f"{name}: {reason}" for name, reason in unmet.items()))
        else:
            log.info("ready")


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host or (not host and socket.has_dualstack_ipv6()) else socket.AF_INET


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[Mapping[str, Callable[[str], tuple[int, str, bytes]]]]
    event_loop: asyncio.AbstractEventLoop

    def do_GET(self) -> None:
        answer = self.answers.get(self.path.partition("?")[0])
        if answer is None:
            self._send(404, "text/plain", b"there are /metrics, /healthz and /readyz\n")
            return

        async def in_loop() -> tuple[int, str, bytes]:
            return answer(self.headers.get("Accept", ""))

        asked = asyncio.run_coroutine_threadsafe(in_loop(), self.event_loop)
        try:
            self._send(*asked.result(LOOP_SECONDS))
        except TimeoutError:
            asked.cancel()
            self._send(503, "text/plain", b"the event loop does not answer\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes every few seconds are not worth a line."""

    def version_string(self) -> str:
        return "dra-driver"
