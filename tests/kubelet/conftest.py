"""A served plugin and a client for it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc.aio
import pytest

from dra_driver.kubelet.calls import Calls
from dra_driver.kubelet.dra_service import DRA_VERSIONS, DraService
from dra_driver.kubelet.pb import dra_v1_pb2, dra_v1beta1_pb2
from dra_driver.kubelet.sockets import grpc_address
from dra_driver.kubelet.wire import new_channel, new_server, service, unary
from dra_driver.model.prepared import ClaimRef
from tests.kubelet.plugin import DRIVER, Observer, Preparer

MESSAGES: dict[str, ModuleType] = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}


@dataclass
class Client:
    """Calls a plugin as the kubelet does, in one API version."""

    channel: grpc.aio.Channel
    messages: ModuleType

    async def prepare(self, *claims: ClaimRef, timeout: float | None = None) -> dict[str, Any]:
        response = await self._call("NodePrepareResources", claims, timeout)
        return dict(response.claims)

    async def unprepare(self, *claims: ClaimRef, timeout: float | None = None) -> dict[str, str]:
        response = await self._call("NodeUnprepareResources", claims, timeout)
        return {uid: entry.error for uid, entry in response.claims.items()}

    async def _call(self, method: str, claims: tuple[ClaimRef, ...], timeout: float | None) -> Any:
        request = getattr(self.messages, f"{method}Request")()
        for claim in claims:
            request.claims.add(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        return await unary(self.channel, service(self.messages.DESCRIPTOR, "DRAPlugin"), method)(
            request, timeout=timeout
        )


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory with a short name: pytest's own leave too few bytes for a socket's path."""
    with tempfile.TemporaryDirectory(prefix="dra-") as directory:
        yield Path(directory)


@pytest.fixture
def preparer() -> Preparer:
    return Preparer()


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def calls(observer: Observer) -> Calls:
    return Calls(DRIVER, observer)


@pytest.fixture
async def channel(preparer: Preparer, calls: Calls, root: Path) -> AsyncIterator[grpc.aio.Channel]:
    """To a server of the DRA service in all versions."""
    server = new_server(DraService(DRIVER, preparer, calls).handlers(DRA_VERSIONS))
    address = grpc_address(root / "dra.sock")
    server.add_insecure_port(address)
    await server.start()
    channel = new_channel(address)
    yield channel
    await channel.close(None)
    await server.stop(None)


@pytest.fixture
def client(channel: grpc.aio.Channel) -> Client:
    return Client(channel, dra_v1_pb2)


@pytest.fixture
def beta(channel: grpc.aio.Channel) -> Client:
    return Client(channel, dra_v1beta1_pb2)
