"""What no driver can avoid: a bare gRPC server that reads the claim, writes one durable record and knows nothing else.
else.

It has the same calls as a driver, so it is measured with the same client and in the same order; parts that are
measured one by one in hot loops are up to twice as fast as the same parts in turn, in any language.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dra_driver.kubelet.pb import dra_v1_pb2 as dra

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
RECORD = b"x" * 1200


class RawClient:
    """HTTP/1.1 GETs on warm TLS connections, as many as are needed at once; answers are decoded and nothing is
    checked."""

    def __init__(self, url: str, ca: str, certificate: str, key: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = ssl.create_default_context(cafile=ca)
        self._tls.load_cert_chain(certificate, key)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def get(self, path: str) -> Any:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: application/json\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        self._idle.append((reader, writer))
        return json.loads(body)


class BareServer:
    """Prepare: GET and record per claim, unless it is recorded already. Unprepare: the record is removed."""

    def __init__(self, client: RawClient, directory: Path) -> None:
        self._client = client
        self._directory = directory
        self._recorded: set[str] = set()

    async def prepare(self, request: Any, context: Any) -> Any:
        await asyncio.gather(*(self._one(claim) for claim in request.claims if claim.uid not in self._recorded))
        response = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            device = dra.Device(request_names=["gpu"], pool_name="node", device_name="gpu-0")
            device.cdi_device_ids.append(f"k8s.gpu.nvidia.com/claim={claim.uid}-gpu-0")
            response.claims[claim.uid].devices.append(device)
        return response

    async def unprepare(self, request: Any, context: Any) -> Any:
        response = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            (self._directory / claim.uid).unlink(missing_ok=True)
            self._recorded.discard(claim.uid)
            response.claims[claim.uid].error = ""
        return response

    async def _one(self, claim: Any) -> None:
        await self._client.get(f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}")
        await asyncio.get_running_loop().run_in_executor(None, write_record, self._directory, claim.uid)
        self._recorded.add(claim.uid)


def write_record(directory: Path, name: str) -> None:
    """One record of the usual size: written beside, fsynced, renamed."""
    temporary = directory / f".{name}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, RECORD)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.rename(directory / name)


async def serve(socket: str, directory: Path, client: RawClient) -> None:
    bare = BareServer(client, directory)

    def method(handle: Callable[[Any, Any], Any], request: Any, response: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=request.FromString, response_serializer=response.SerializeToString
        )

    methods = {
        "NodePrepareResources": method(bare.prepare, dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse),
        "NodeUnprepareResources": method(
            bare.unprepare, dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse
        ),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    socket_path, state_directory, *credentials = sys.argv[1:]
    asyncio.run(serve(socket_path, Path(state_directory), RawClient(*credentials)))
