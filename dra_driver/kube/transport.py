"""One HTTP exchange with the API server over aiohttp: connections, headers, and every failure mapped to our errors.

Connections are kept alive just shorter than the API server keeps them (90 s), there is no limit on how many are open at
once, and the kernel is told to notice a dead peer within half a minute, where an idle watch would hang for minutes.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from email.utils import parsedate_to_datetime
from typing import Any

import yarl

from dra_driver import __version__
from dra_driver.kube.answers import read_json
from dra_driver.kube.config import ApiConfig, TlsContext
from dra_driver.kube.errors import Unavailable, from_answer
from dra_driver.kube.http_library import aiohttp
from dra_driver.kube.warm_connections import WarmConnections

USER_AGENT = f"dra-driver/{__version__}"
CONNECT_TIMEOUT = 5.0
_KEEP_ALIVE = 75.0


class Transport:
    """Sends single requests of one configuration; the connections open on first use and belong to one event loop."""

    def __init__(self, config: ApiConfig, user_agent: str = USER_AGENT) -> None:
        self.config = config
        self._tls = TlsContext(config.tls, source=config.source)
        self._is_tls = config.server.startswith("https")
        self._headers: dict[str, str] = {"Accept": "application/json", "User-Agent": user_agent}
        self._repeated = config.headers
        self._session: aiohttp.ClientSession | None = None
        # A proxy is aiohttp's affair.
        self._warm = None if config.proxy else self._warm_connections()

    async def exchange(
        self,
        verb: str,
        path: str,
        *,
        data: bytes | None = None,
        content_type: str | None = None,
        timeout: float,
        decode: Callable[[bytes], Any] = json.loads,
    ) -> Any:
        """Sends one request and returns the decoded JSON of a 2xx answer.

        Args:
            path: path with query, percent-encoded.
            timeout: seconds for everything.
            decode: makes the answer of the body; raises ValueError when it is not JSON.

        Raises:
            ApiError: any other answer, or none.
        """
        body = await self._get_warm(path, timeout) if verb == "get" else None
        if body is None:
            limits = aiohttp.ClientTimeout(total=timeout, sock_connect=min(CONNECT_TIMEOUT, timeout))
            async with self._open(verb, path, data, content_type, limits) as response:
                body = await response.read()
        try:
            return read_json(body, decode)
        except ValueError as error:
            raise Unavailable(
                f"the answer is not JSON: {body[:200]!r}", status=200, reason="NotJson", verb=verb, path=path
            ) from error

    async def _get_warm(self, path: str, timeout: float) -> bytes | None:
        """The body of a 2xx answer to a GET on a warm connection; None when it has to be asked through aiohttp."""
        if self._warm is None:
            return None
        try:
            answer = await self._warm.get(path, await self.config.credentials.authorization(), timeout)
        except TimeoutError as error:
            raise _unavailable(error, "get", path, self.config.server) from error
        if answer is None:
            return None
        if answer.status >= 300:
            retry_after = _retry_after(answer.headers.get("retry-after"))
            raise from_answer(answer.status, answer.body, verb="get", path=path, retry_after=retry_after)
        return answer.body

    def _warm_connections(self) -> WarmConnections:
        return WarmConnections(
            self.config,
            lambda: self._tls_context() if self._is_tls else None,
            [*self._headers.items(), *self._repeated],
            connect_timeout=CONNECT_TIMEOUT,
        )

    async def stream(self, path: str, *, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        """Chunks of a GET answer as they arrive, an empty one first once it was accepted; ends when the server ends it.

        Raises:
            Unavailable: the connection broke, or nothing came for ``idle_timeout`` seconds.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle_timeout)
        async with self._open("watch", path, None, None, limits) as response:
            yield b""
            async for chunk in response.content.iter_any():
                if chunk:
                    yield chunk

    async def rejected(self) -> bool:
        """A request got 401: drops cached credentials; True when another try may be answered differently."""
        self._tls.look_again()
        before = self._tls_context() if self._is_tls else None
        changed = await self.config.credentials.rejected()
        return changed or (self._is_tls and self._tls_context() is not before)

    async def close(self) -> None:
        """Closes all connections; running requests fail."""
        if self._warm is not None:
            await self._warm.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    @contextlib.asynccontextmanager
    async def _open(
        self, verb: str, path: str, data: bytes | None, content_type: str | None, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = self._session or self._start()
        headers: Any = self._headers
        authorization = await self.config.credentials.authorization()
        if authorization is not None or content_type is not None or self._repeated:
            headers = [*self._headers.items(), *self._repeated]
            if authorization is not None:
                headers.append(("Authorization", authorization))
            if content_type is not None:
                headers.append(("Content-Type", content_type))
        try:
            async with session.request(
                "GET" if verb in ("list", "watch") else verb,
                yarl.URL(self.config.server + path, encoded=True),
                data=data,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                ssl=self._tls_context() if self._is_tls else True,
                server_hostname=self.config.server_name,
                proxy=self.config.proxy,
            ) as response:
                if response.status >= 300:
                    body = await response.read()
                    raise from_answer(
                        response.status,
                        body,
                        verb=verb,
                        path=path,
                        retry_after=_retry_after(response.headers.get("Retry-After")),
                    )
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unavailable(error, verb, path, self.config.server) from error

    def _tls_context(self) -> ssl.SSLContext:
        return self._tls.current(self.config.credentials.client_certificate())

    def _start(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=_KEEP_ALIVE, ttl_dns_cache=30, socket_factory=_watched_socket
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # The server compresses answers above 128 KiB when asked; worth it for no list of one node's objects.
            skip_auto_headers=("Accept-Encoding",),
        )
        return self._session


def _watched_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    created = socket.socket(family=family, type=kind, proto=protocol)
    created.setblocking(False)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Names that other systems than Linux lack; there the system's own defaults hold.
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                created.setsockopt(socket.IPPROTO_TCP, option, value)
    return created


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date (RFC 9110)."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, until.timestamp() - time.time())


def _unavailable(error: Exception, verb: str, path: str, server: str) -> Unavailable:
    """No answer came; ``reason`` says how far the request got, which decides about repeating it."""
    hint = None
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        reason, message = "TlsFailed", f"TLS with {server} failed: {_cause(error)}"
        hint = "compare the cluster's CA with certificate-authority, and the URL's host with the server's certificate"
    elif isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        reason, message = "NotConnected", f"the proxy cannot be used: {error}"
        hint = "check proxy-url and HTTPS_PROXY"
    elif isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        reason, message = "NotConnected", f"no connection to {server}: {_cause(error)}"
    elif isinstance(error, aiohttp.SocketTimeoutError):
        reason, message = "Idle", f"{server} sent nothing for too long"
    elif isinstance(error, TimeoutError):
        reason, message = "Timeout", f"no answer from {server} in time"
    else:
        reason, message = "ConnectionLost", f"the connection to {server} broke: {_cause(error)}"
    return Unavailable(message, reason=reason, verb=verb, path=path, hint=hint)


def _cause(error: Exception) -> str:
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None)
    return str(inner or error) or type(error).__name__
