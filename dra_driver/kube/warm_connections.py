"""GETs of single objects on connections that stay open: the one request that every claim waits for.

A claim is read from the API server while the kubelet waits. Through aiohttp that costs 0.6 ms more than the exchange
itself (docs/performance.md), a tenth of a whole prepare, so this one request is written out: HTTP/1.1, one request
at a time per connection, answers with a Content-Length. Whatever is not as plain as that is left to aiohttp: no
connection, a proxy, an answer in chunks, a connection that the server closed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from dra_driver.kube.config import ApiConfig

KEEP_SECONDS = 75.0
"""For how long an unused connection is trusted; API servers close them after 90 s."""

KEPT = 16
"""Most connections that are kept unused."""

LARGEST_BODY = 16 << 20

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[^\r]*close", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tls: ssl.SSLContext | None
    idle_since: float

    def usable(self, tls: ssl.SSLContext | None, now: float) -> bool:
        # A renewed context means new certificates or another user.
        return (
            self.tls is tls
            and now - self.idle_since < KEEP_SECONDS
            and not self.reader.at_eof()
            and not self.writer.is_closing()
        )


class WarmConnections:
    """Connections of one configuration; they belong to one event loop.

    Args:
        tls: the context to use now, None for plain HTTP.
        headers: sent with every request.
    """

    def __init__(
        self,
        config: ApiConfig,
        tls: Callable[[], ssl.SSLContext | None],
        headers: Sequence[tuple[str, str]],
        *,
        connect_timeout: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        url = urlsplit(config.server)
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path
        self._server_name = config.server_name or self._host
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._monotonic = monotonic
        fixed = [("Host", url.netloc.rpartition("@")[2]), *headers]
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fixed)
        self._idle: list[_Connection] = []

    async def get(self, path: str, authorization: str | None, timeout: float) -> Answer | None:
        """One GET.

        Args:
            path: path with query, percent-encoded.
            timeout: seconds for everything.

        Returns:
            None when it has to be asked in another way; whether the server saw this request is then unknown.

        Raises:
            TimeoutError: no complete answer in time.
        """
        async with asyncio.timeout(timeout):
            connection = self._take() or await self._connect()
            if connection is None:
                return None
            lines = f"GET {self._prefix}{path} HTTP/1.1\r\n{self._head}"
            if authorization is not None:
                lines += f"Authorization: {authorization}\r\n"
            keep = False
            try:
                connection.writer.write(f"{lines}\r\n".encode("latin-1"))
                answer, keep = await _read(connection.reader)
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                # Closed by the server meanwhile, or not understood: aiohttp finds out which.
                return None
            finally:
                if not keep:
                    connection.writer.close()
            self._give_back(connection)
            return answer

    async def close(self) -> None:
        """Close what is unused; running requests end by themselves."""
        for connection in self._idle:
            connection.writer.close()
        for connection in self._idle:
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()
        self._idle.clear()

    def _take(self) -> _Connection | None:
        tls, now = self._tls(), self._monotonic()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(tls, now):
                return connection
            connection.writer.close()
        return None

    def _give_back(self, used: _Connection) -> None:
        if len(self._idle) < KEPT:
            self._idle.append(_Connection(used.reader, used.writer, used.tls, self._monotonic()))
        else:
            used.writer.close()

    async def _connect(self) -> _Connection | None:
        tls = self._tls()
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=tls, server_hostname=self._server_name if tls is not None else None
                )
        except (OSError, TimeoutError):
            return None
        return _Connection(reader, writer, tls, self._monotonic())


async def _read(reader: asyncio.StreamReader) -> tuple[Answer | None, bool]:
    """The answer, None when it is not a plain one; and whether the connection can be used again."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if not head.startswith(b"HTTP/1.1 ") or length is None or _CHUNKED.search(head) is not None:
        return None, False
    size = int(length[1])
    status = int(head[9:12])
    if size > LARGEST_BODY or status < 200:
        return None, False
    body = await reader.readexactly(size)
    # Only failures need their headers.
    headers = _headers(head) if status >= 300 else {}
    return Answer(status, headers, body), _CLOSE.search(head) is None


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in lines}
