"""The gRPC health protocol for probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.grpc_health import GrpcHealthServer
from dra_driver.kubelet.pb.grpc_health_v1_pb2 import HealthCheckRequest, HealthCheckResponse
from dra_driver.kubelet.wire import new_channel

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


@dataclass
class Checked:
    """A served health service and what its checks say."""

    port: int = 0
    problem: str | None = None
    raised: list[Exception] = field(default_factory=list)

    async def check(self) -> str | None:
        if self.raised:
            raise self.raised[0]
        return self.problem


@pytest.fixture
async def checked() -> AsyncIterator[Checked]:
    state = Checked()
    server = GrpcHealthServer("127.0.0.1:0", {"": state.check, "liveness": state.check}, watch_seconds=0.01)
    await server.start()
    state.port = server.port
    yield state
    await server.stop()


@pytest.fixture
async def channel(checked: Checked) -> AsyncIterator[grpc.aio.Channel]:
    channel = new_channel(f"127.0.0.1:{checked.port}")
    yield channel
    await channel.close(None)


async def check(channel: grpc.aio.Channel, name: str = "") -> int:
    # The method's path as every probe writes it.
    call = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    answer: HealthCheckResponse = await call(HealthCheckRequest(service=name))
    return answer.status


@pytest.mark.parametrize("name", ["", "liveness"])
async def test_check(checked: Checked, channel: grpc.aio.Channel, name: str) -> None:
    assert await check(channel, name) == SERVING
    checked.problem = "no slice published for 5 min"
    assert await check(channel, name) == NOT_SERVING
    checked.problem = None
    assert await check(channel, name) == SERVING


@pytest.mark.parametrize(
    ("raised", "logged"),
    [
        pytest.param(EnvironmentFault("API server away"), "service '': API server away", id="fault"),
        pytest.param(ZeroDivisionError(), "the check of service '' failed", id="bug"),
    ],
)
async def test_a_check_that_raises_is_not_serving(
    checked: Checked, channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture, raised: Exception, logged: str
) -> None:
    checked.raised.append(raised)
    with caplog.at_level("INFO"):
        assert await check(channel) == NOT_SERVING
    assert logged in caplog.text


async def test_unknown_service(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(channel, "other")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_watch(checked: Checked, channel: grpc.aio.Channel) -> None:
    ask = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )

    async def status(stream: Any) -> int:
        answer: HealthCheckResponse = await stream.read()
        return answer.status

    watch, unknown = ask(HealthCheckRequest()), ask(HealthCheckRequest(service="other"))
    assert await status(watch) == SERVING
    assert await status(unknown) == HealthCheckResponse.SERVICE_UNKNOWN
    await asyncio.sleep(0.05)
    checked.problem = "x"
    assert await status(watch) == NOT_SERVING
    checked.problem = None
    assert await status(watch) == SERVING


async def test_on_a_unix_socket(root: Path) -> None:
    state = Checked()
    server = GrpcHealthServer(f"unix:{root}/health.sock", {"": state.check})
    await server.start()
    channel = new_channel(f"unix:{root}/health.sock")
    assert await check(channel) == SERVING
    await channel.close(None)
    await server.stop()


async def test_an_address_in_use_is_told(checked: Checked) -> None:
    server = GrpcHealthServer(f"127.0.0.1:{checked.port}", {})
    with pytest.raises(
        EnvironmentFault, match=rf"can't be served on 127\.0\.0\.1:{checked.port}: .* in use on this node"
    ):
        await server.start()
