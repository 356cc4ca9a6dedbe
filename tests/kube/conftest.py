"""Fixtures of this folder: the in-process API server and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dra_driver.kube.client import ApiClient
from tests.kube.fake_apiserver import FakeApiServer


@pytest.fixture
async def fake() -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(fake: FakeApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(fake.config()) as opened:
        yield opened
