"""Latency of prepare and unprepare as the kubelet sees it, memory, and time to the first slice.

The daemon runs as a process of its own against a real API server, on a stand-in NVML and a fake driver root, so that
the CDI specs have their real size. This process acts as the kubelet on the daemon's socket.

The floor is what no driver can avoid (``benchmarks.floor``): a bare gRPC server that does one raw GET of the claim
and one fsynced record, called by the same client in the same order and in turn with the daemon. Beside it stands the
sum of its parts, each measured alone in a hot loop.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.floor import SERVICE, write_record
from dra_driver.kubelet.pb import dra_v1_pb2 as dra
from tests.cluster.apiserver import ApiServer
from tests.gpu_machine import GpuMachine

NODE = "bench-node"
DRIVER = "gpu.nvidia.com"
ROUNDS = 200
GPUS = 8
SLICES = "/apis/resource.k8s.io/v1/resourceslices"

REACH_MS = {
    "one claim": 2.5,
    "one claim again": 1.0,
    "eight claims in one call": 9.0,
    "eight calls at once": 13.0,
    "unprepare": 0.8,
}
GO_DRIVER_MS = {
    "one claim": "201 / 3.3-5.0",
    "one claim again": "196 / 1.7-3.1",
    "eight claims in one call": "1588 / 49-58",
    "eight calls at once": "893 / 715",
    "unprepare": "1.2-2.4",
}
"""NVIDIA's Go driver 0.5.0-dev on a machine of this kind: as shipped / with its client throttle lifted."""


class Samples:
    """Durations of one kind, in milliseconds."""

    def __init__(self) -> None:
        self.values: list[float] = []

    async def time(self, call: Callable[[], Awaitable[Any]]) -> Any:
        started = time.perf_counter()
        result = await call()
        self.values.append((time.perf_counter() - started) * 1e3)
        return result

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    @property
    def p50(self) -> float:
        return self.percentile(50)


def create_claims(server: ApiServer) -> list[dict[str, Any]]:
    """One allocated claim per GPU, as the scheduler leaves them."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    assert server.post("/api/v1/nodes", node)[0] == 201
    claims = []
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    for number in range(GPUS):
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{number}", "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
        status, claim = server.post(path, body)
        assert status == 201, claim
        claim["status"] = {
            "allocation": {
                "devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{number}"}]}
            },
            "reservedFor": [{"resource": "pods", "name": f"pod-{number}", "uid": f"pod-uid-{number}"}],
        }
        status, claim = server.put(f"{path}/claim-{number}/status", claim)
        assert status == 200, claim
        claims.append(claim)
    return claims


def references(claims: list[dict[str, Any]]) -> list[Any]:
    return [
        dra.Claim(namespace="default", uid=claim["metadata"]["uid"], name=claim["metadata"]["name"]) for claim in claims
    ]


class Plugin:
    """The daemon's socket, called as the kubelet calls it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._prepare = channel.unary_unary(
            f"/{SERVICE}/NodePrepareResources",
            request_serializer=dra.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=dra.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare = channel.unary_unary(
            f"/{SERVICE}/NodeUnprepareResources",
            request_serializer=dra.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=dra.NodeUnprepareResourcesResponse.FromString,
        )

    async def prepare(self, claims: list[Any]) -> None:
        answer = await self._prepare(dra.NodePrepareResourcesRequest(claims=claims))
        for claim in claims:
            entry = answer.claims[claim.uid]
            assert not entry.error, entry.error
            assert entry.devices[0].cdi_device_ids, "no CDI device"

    async def unprepare(self, claims: list[Any]) -> None:
        answer = await self._unprepare(dra.NodeUnprepareResourcesRequest(claims=claims))
        for claim in claims:
            assert not answer.claims[claim.uid].error, answer.claims[claim.uid].error


async def measure(plugins: Sequence[Plugin], claims: list[Any]) -> list[dict[str, Samples]]:
    """All kinds of calls on each plugin, in turn, so that both meet the machine in the same moods."""
    samples = [{name: Samples() for name in REACH_MS} for _ in plugins]
    for plugin in plugins:
        for _ in range(20):
            await plugin.prepare(claims)
            await plugin.unprepare(claims)
    for round_number in range(ROUNDS):
        one = [claims[round_number % len(claims)]]
        for plugin, into in zip(plugins, samples, strict=True):
            await into["one claim"].time(lambda plugin=plugin, one=one: plugin.prepare(one))  # type: ignore[misc]
            await into["one claim again"].time(lambda plugin=plugin, one=one: plugin.prepare(one))  # type: ignore[misc]
            await into["unprepare"].time(lambda plugin=plugin, one=one: plugin.unprepare(one))  # type: ignore[misc]
    for _ in range(ROUNDS // 4):
        for plugin, into in zip(plugins, samples, strict=True):
            await into["eight claims in one call"].time(lambda plugin=plugin: plugin.prepare(claims))  # type: ignore[misc]
            await plugin.unprepare(claims)
            await into["eight calls at once"].time(lambda plugin=plugin: at_once(plugin, claims))  # type: ignore[misc]
            await plugin.unprepare(claims)
    return samples


async def at_once(plugin: Plugin, claims: list[Any]) -> None:
    await asyncio.gather(*(plugin.prepare([claim]) for claim in claims))


async def measure_both(daemon: Path, bare: Path, claims: list[Any]) -> tuple[list[dict[str, Samples]], Samples]:
    """The daemon, the bare server, and a bare echo: a claim that the bare server has recorded already."""
    echo = Samples()
    async with (
        grpc.aio.insecure_channel(f"unix:{daemon}") as ours,
        grpc.aio.insecure_channel(f"unix:{bare}") as theirs,
    ):
        await theirs.channel_ready()
        plugin = Plugin(theirs)
        results = await measure([Plugin(ours), plugin], claims)
        await plugin.prepare(claims[:1])
        for _ in range(ROUNDS):
            await echo.time(lambda: plugin.prepare(claims[:1]))
    return results, echo


def measure_get(server: ApiServer) -> Samples:
    """One GET of a claim with the standard library's client on a warm TLS connection, body decoded."""
    url = urllib.parse.urlsplit(server.url)
    context = ssl.create_default_context(cafile=str(server.pki.ca))
    context.load_cert_chain(server.pki.certificate("admin"), server.pki.key("admin"))
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=context)
    samples = Samples()
    for number in range(ROUNDS + 20):
        started = time.perf_counter()
        connection.request("GET", f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim-{number % GPUS}")
        json.loads(connection.getresponse().read())
        if number >= 20:
            samples.values.append((time.perf_counter() - started) * 1e3)
    connection.close()
    return samples


def measure_record(directory: Path) -> Samples:
    samples = Samples()
    for number in range(ROUNDS):
        started = time.perf_counter()
        write_record(directory, f"record-{number}")
        samples.values.append((time.perf_counter() - started) * 1e3)
    return samples


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


def wait_for_slice(server: ApiServer, process: subprocess.Popen[bytes]) -> None:
    while True:
        slices = server.items(SLICES)
        if any(len(item["spec"].get("devices") or ()) == GPUS for item in slices):
            return
        if process.poll() is not None:
            raise RuntimeError(f"the daemon ended with status {process.returncode}")
        time.sleep(0.005)


def measure_help() -> Samples:
    samples = Samples()
    for _ in range(10):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dra_driver", "--help"], check=True, stdout=subprocess.DEVNULL)
        samples.values.append((time.perf_counter() - started) * 1e3)
    return samples


def main() -> None:
    # On the disk of the kubelet's directory, not on a tmpfs: fsync is part of what is measured.
    # CDI specs are on a tmpfs, as /var/run/cdi is on a node.
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as temporary,
        tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm") as specs,
    ):
        directory = Path(temporary)
        server = ApiServer()
        try:
            server.start()
            run(server, directory, Path(specs))
        finally:
            server.close()


def run(server: ApiServer, directory: Path, specs: Path) -> None:
    claims = references(create_claims(server))
    machine = GpuMachine.create(directory / "machine", "dgx-h100")
    command = [
        sys.executable, "-m", "dra_driver", "node",
        "--node-name", NODE,
        "--kubeconfig", str(server.kubeconfig),
        *machine.flags,
        "--cdi-dir", str(specs),
        "--kubelet-plugins-dir", str(directory / "plugins"),
        "--kubelet-registry-dir", str(directory / "registry"),
        "--pod-resources-socket", str(directory / "pod-resources.sock"),
        "--http-address", "127.0.0.1:0",
        "--log-level", "warning",
    ]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(command, env=os.environ | machine.env)
    bare: subprocess.Popen[bytes] | None = None
    try:
        wait_for_slice(server, process)
        to_slice = time.perf_counter() - started
        time.sleep(3)
        idle = resident_mib(process.pid)
        bare_socket, bare_records = directory / "bare.sock", directory / "bare"
        bare_records.mkdir()
        pki = server.pki
        credentials = [server.url, str(pki.ca), str(pki.certificate("admin")), str(pki.key("admin"))]
        bare = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.floor", str(bare_socket), str(bare_records), *credentials]
        )
        ours = directory / "plugins" / DRIVER / "dra.sock"
        (samples, floor), echo = asyncio.run(measure_both(ours, bare_socket, claims))
        after = resident_mib(process.pid)
        get, record = measure_get(server), measure_record(directory)
    finally:
        for running in (process, bare):
            if running is not None:
                running.terminate()
                running.wait()
    print("## prepare: p50 (p99) in ms, as the kubelet sees it\n")
    print("| what | p50 | p99 | floor p50 | p50 / floor | reach | Go driver, as shipped / unthrottled |")
    print("|---|---|---|---|---|---|---|")
    for name, values in samples.items():
        least = floor[name].p50
        row = [name, f"{values.p50:.2f}", f"{values.percentile(99):.2f}", f"{least:.2f}", f"{values.p50 / least:.2f}"]
        print("| " + " | ".join([*row, f"{REACH_MS[name]:g}", GO_DRIVER_MS[name]]) + " |")
    hot = echo.p50 + get.p50 + record.p50
    print(
        f"\nparts of the floor in hot loops: echo {echo.p50:.2f} + GET {get.p50:.2f} + record {record.p50:.2f}", end=" "
    )
    print(f"= {hot:.2f} ms; one claim / sum = {samples['one claim'].p50 / hot:.2f}")
    print(f"resident: {idle:.1f} MiB idle (reach 60), {after:.1f} MiB after the calls; Go driver 60-64")
    print(f"start to slice visible: {to_slice:.2f} s (reach 0.9; Go driver 1.1)")
    print(f"--help: {measure_help().p50:.0f} ms (reach 100)")


if __name__ == "__main__":
    main()
