"""Reading on warm connections: what is plain is answered, everything else is left to the ordinary way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from dra_driver.kube.config import ApiConfig
from dra_driver.kube.warm_connections import KEEP_SECONDS, KEPT, LARGEST_BODY, Answer, WarmConnections

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Server:
    """Answers each request with the next script entry (bytes, or a coroutine function for the connection)."""

    url: str = ""
    answers: list[bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                answer = self.answers.pop(0) if self.answers else PLAIN
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
        writer.close()

    def hang_up(self) -> None:
        for writer in self.writers:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    script = Server()
    listening = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield script
    script.hang_up()
    listening.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def warm(server: Server, clock: Clock) -> AsyncIterator[WarmConnections]:
    connections = WarmConnections(
        ApiConfig(server=server.url + "/clusters/a", source="test"),
        lambda: None,
        [("Accept", "application/json"), ("Impersonate-User", "jane")],
        connect_timeout=5,
        monotonic=clock,
    )
    yield connections
    await connections.close()


async def test_request_has_path_host_headers_and_token(server: Server, warm: WarmConnections) -> None:
    assert await warm.get("/api/v1/nodes/n?x=1", "Bearer t", 10) == Answer(200, {}, b"{}")
    (request,) = server.requests
    assert request.splitlines()[0] == "GET /clusters/a/api/v1/nodes/n?x=1 HTTP/1.1"
    host = server.url.removeprefix("http://")
    assert {f"Host: {host}", "Accept: application/json", "Impersonate-User: jane", "Authorization: Bearer t"} <= set(
        request.splitlines()
    )


async def test_one_connection_serves_one_request_after_the_other(server: Server, warm: WarmConnections) -> None:
    for _ in range(5):
        assert await warm.get("/a", None, 10)
    assert server.connections == 1
    assert "Authorization" not in server.requests[0]


async def test_requests_at_the_same_time_have_connections_of_their_own(server: Server, warm: WarmConnections) -> None:
    answers = await asyncio.gather(*(warm.get(f"/{n}", None, 10) for n in range(KEPT + 4)))
    assert all(answer == Answer(200, {}, b"{}") for answer in answers)
    assert server.connections == KEPT + 4
    await asyncio.gather(*(warm.get(f"/{n}", None, 10) for n in range(KEPT + 4)))
    assert server.connections == KEPT + 8, "no more than KEPT stay open"


async def test_a_failure_has_status_headers_and_body(server: Server, warm: WarmConnections) -> None:
    server.answers = [b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  7 \r\nContent-Length: 4\r\n\r\nslow"]
    assert await warm.get("/a", None, 10) == Answer(429, {"retry-after": "7", "content-length": "4"}, b"slow")


async def test_a_connection_that_the_server_closed_is_not_used_again(server: Server, warm: WarmConnections) -> None:
    await warm.get("/a", None, 10)
    server.hang_up()
    await asyncio.sleep(0.05)
    assert await warm.get("/b", None, 10) == Answer(200, {}, b"{}")
    assert server.connections == 2


async def test_a_connection_is_not_trusted_after_a_long_pause(
    server: Server, warm: WarmConnections, clock: Clock
) -> None:
    await warm.get("/a", None, 10)
    clock.now += KEEP_SECONDS
    await warm.get("/b", None, 10)
    assert server.connections == 2


async def test_the_server_may_ask_for_the_end_of_the_connection(server: Server, warm: WarmConnections) -> None:
    server.answers = [PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")]
    assert await warm.get("/a", None, 10) == Answer(200, {}, b"{}")
    await warm.get("/b", None, 10)
    assert server.connections == 2


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _half(writer: asyncio.StreamWriter) -> None:
    writer.write(PLAIN[:-1])
    await writer.drain()
    writer.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="chunked"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="both"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n{}", id="no-length"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="http-1.0"),
        pytest.param(b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n", id="interim"),
        pytest.param(b"HTTP/1.1 two OK\r\nContent-Length: 2\r\n\r\n{}", id="bad-status"),
        pytest.param(f"HTTP/1.1 200 OK\r\nContent-Length: {LARGEST_BODY + 1}\r\n\r\n".encode(), id="too-large"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 17) + b"\r\n\r\n", id="endless-header"),
        pytest.param(_hang_up, id="hung-up"),
        pytest.param(_half, id="half-a-body"),
    ],
)
async def test_what_is_not_plain_is_left_to_others_and_its_connection_is_not_used_again(
    server: Server, warm: WarmConnections, answer: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]
) -> None:
    server.answers = [answer]
    assert await warm.get("/a", None, 10) is None
    assert await warm.get("/b", None, 10) == Answer(200, {}, b"{}")
    assert server.connections == 2


async def test_a_late_answer_belongs_to_nobody(server: Server, warm: WarmConnections) -> None:
    late = asyncio.Event()

    async def wait(writer: asyncio.StreamWriter) -> None:
        await late.wait()
        writer.write(PLAIN.replace(b"{}", b"[]"))

    server.answers = [wait]
    with pytest.raises(TimeoutError):
        await warm.get("/slow", None, 0.05)
    late.set()
    assert await warm.get("/next", None, 10) == Answer(200, {}, b"{}")


async def test_a_cancelled_request_takes_its_connection_along(server: Server, warm: WarmConnections) -> None:
    waiting = asyncio.Event()

    async def never(writer: asyncio.StreamWriter) -> None:
        waiting.set()
        await asyncio.Event().wait()

    server.answers = [never]
    asking = asyncio.create_task(warm.get("/slow", None, 10))
    await waiting.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await warm.get("/next", None, 10) == Answer(200, {}, b"{}")
    assert server.connections == 2


async def test_nobody_listens() -> None:
    config = ApiConfig(server="http://127.0.0.1:1", source="test")
    warm = WarmConnections(config, lambda: None, [], connect_timeout=5)
    assert await warm.get("/a", None, 10) is None
