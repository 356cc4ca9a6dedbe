"""The probes tell why, and notice an event loop that is stuck."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.calls import FinishedCall
from dra_driver.node import http
from dra_driver.node.http import HttpServer
from dra_driver.node.metrics import Metrics


@pytest.fixture
def unmet() -> dict[str, str]:
    return {}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def url(unmet: dict[str, str], metrics: Metrics) -> AsyncIterator[str]:
    server = HttpServer("127.0.0.1", 0, registry=metrics.registry, ready=lambda: unmet)
    port = await server.start()
    yield f"http://127.0.0.1:{port}"
    await server.stop()


def fetch(url: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_ready_when_nothing_is_unmet(url: str) -> None:
    assert await asyncio.to_thread(fetch, f"{url}/readyz") == (200, "ok\n")
    assert await asyncio.to_thread(fetch, f"{url}/healthz") == (200, "ok\n")


async def test_what_the_probes_are_told_is_logged_when_it_changes(
    url: str, unmet: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dra_driver.node.http")
    for now in ({}, {"hardware": "for 61 s"}, {"hardware": "for 66 s"}, {"hardware": "unknown", "slices": "none"}, {}):
        unmet.clear()
        unmet.update(now)
        await asyncio.to_thread(fetch, f"{url}/readyz")
        await asyncio.to_thread(fetch, f"{url}/readyz")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "ready"),
        ("WARNING", "not ready: hardware: for 61 s"),
        ("WARNING", "not ready: hardware: unknown; slices: none"),
        ("INFO", "ready"),
    ]


async def test_unmet_conditions_are_named_and_do_not_make_it_unhealthy(url: str, unmet: dict[str, str]) -> None:
    unmet["hardware"] = "not looked at"
    unmet["slices"] = "API server is away"
    assert await asyncio.to_thread(fetch, f"{url}/readyz") == (
        503,
        "hardware: not looked at\nslices: API server is away\n",
    )
    assert (await asyncio.to_thread(fetch, f"{url}/healthz"))[0] == 200


async def test_metrics_count_calls_with_their_outcome(url: str, metrics: Metrics) -> None:
    metrics.call_started("gpu.nvidia.com", "NodePrepareResources")
    metrics.call_finished(FinishedCall("gpu.nvidia.com", "NodePrepareResources", "claims_failed", 0.004, 2, 1))
    metrics.present("dra_driver_devices", "Devices.", ("driver",), lambda: {("gpu.nvidia.com",): 8})
    status, text = await asyncio.to_thread(fetch, f"{url}/metrics")
    assert status == 200
    labels = 'driver="gpu.nvidia.com",method="NodePrepareResources"'
    assert f'dra_driver_requests_total{{{labels},outcome="claims_failed"}} 1.0' in text
    assert 'le="0.005",method="NodePrepareResources",outcome="claims_failed"} 1.0' in text
    assert 'le="0.0025",method="NodePrepareResources",outcome="claims_failed"} 0.0' in text
    assert f"dra_driver_requests_in_flight{{{labels}}} 0.0" in text
    assert 'dra_driver_devices{driver="gpu.nvidia.com"} 8.0' in text
    assert "process_resident_memory_bytes" in text


async def test_other_paths_and_methods(url: str) -> None:
    assert (await asyncio.to_thread(fetch, f"{url}/secret"))[0] == 404
    assert await asyncio.to_thread(fetch, f"{url}/healthz", "HEAD") == (200, "")
    assert (await asyncio.to_thread(fetch, f"{url}/healthz", "POST"))[0] == 501


async def test_a_stuck_event_loop_is_unhealthy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LOOP_SECONDS", 0.05)
    asked = asyncio.get_running_loop().run_in_executor(None, fetch, f"{url}/healthz")
    time.sleep(0.5)  # the loop is stuck on purpose
    assert await asked == (503, "the event loop does not answer\n")


async def test_an_address_in_use_is_named(metrics: Metrics) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer("127.0.0.1", port, registry=metrics.registry, ready=dict)
        with pytest.raises(EnvironmentFault, match=rf"can't listen on 127\.0\.0\.1:{port} .*Address already in use"):
            await server.start()
