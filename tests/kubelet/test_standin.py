"""The demo's kubelet: registers as the kubelet does, and says what is wrong."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.pb import registration_v1_pb2
from dra_driver.kubelet.server import PluginServer
from dra_driver.kubelet.sockets import grpc_address
from dra_driver.kubelet.standin import KubeletStandIn
from dra_driver.kubelet.wire import Context, new_server, rpc_handler, service
from dra_driver.model.prepared import PreparedDevice
from tests.kubelet.plugin import CLAIM, DRIVER, Preparer, eventually, options


@pytest.mark.parametrize(
    ("versions", "called", "share"), [(("v1",), "v1.DRAPlugin", "s"), (("v1beta1",), "v1beta1.DRAPlugin", None)]
)
async def test_calls_the_first_version_it_knows(root: Path, versions: Any, called: str, share: str | None) -> None:
    preparer = Preparer(answers={CLAIM.uid: (PreparedDevice(("gpu",), "node-1", "gpu-0", ("a.com/b=c",), "s"),)})
    server = PluginServer(options(root, versions=versions), preparer)
    async with KubeletStandIn(root / "plugins_registry") as kubelet:
        await server.start()
        plugin = await kubelet.registered(DRIVER)
        assert (plugin.version, plugin.supported, plugin.endpoint) == (called, (called,), str(server.endpoint))
        assert await kubelet.prepare(DRIVER, [CLAIM]) == {
            "uid-a": (PreparedDevice(("gpu",), "node-1", "gpu-0", ("a.com/b=c",), share),)
        }
        await server.stop(1)
        await kubelet.deregistered(DRIVER)
        with pytest.raises(EnvironmentFault, match=f"DRA driver {DRIVER} is not registered"):
            await kubelet.prepare(DRIVER, [CLAIM])


async def test_errors_of_claims_are_texts(root: Path) -> None:
    preparer = Preparer(raises=EnvironmentFault("no"))
    server = PluginServer(options(root), preparer)
    await server.start()
    async with KubeletStandIn(root / "plugins_registry") as kubelet:
        await kubelet.registered(DRIVER)
        assert await kubelet.prepare(DRIVER, [CLAIM]) == {"uid-a": "no"}
        assert await kubelet.unprepare(DRIVER, [CLAIM]) == {"uid-a": "no"}
    await server.stop(1)


@pytest.mark.parametrize(
    ("kind", "versions", "error"),
    [
        ("CSIPlugin", ["v1.DRAPlugin"], "no handler registered for plugin type: CSIPlugin"),
        ("DRAPlugin", ["1.0.0"], "none of services supported by the plugin ['1.0.0'] are supported"),
        ("DRAPlugin", [], "none of services supported by the plugin [] are supported"),
    ],
)
async def test_refuses_as_the_kubelet_does(root: Path, kind: str, versions: list[str], error: str) -> None:
    told: list[registration_v1_pb2.RegistrationStatus] = []

    async def get_info(request: Any, context: Context) -> registration_v1_pb2.PluginInfo:
        return registration_v1_pb2.PluginInfo(type=kind, name="x", supported_versions=versions)

    async def notify(
        request: registration_v1_pb2.RegistrationStatus, context: Context
    ) -> registration_v1_pb2.RegistrationStatusResponse:
        told.append(request)
        return registration_v1_pb2.RegistrationStatusResponse()

    contract = service(registration_v1_pb2.DESCRIPTOR, "Registration")
    server = new_server([rpc_handler(contract, {"GetInfo": get_info, "NotifyRegistrationStatus": notify})])
    server.add_insecure_port(grpc_address(root / "x-reg.sock"))
    await server.start()
    async with KubeletStandIn(root) as kubelet:
        await eventually(lambda: bool(told))
        with pytest.raises(EnvironmentFault, match=r"driver x did not register in .* in 0\.05 s"):
            await kubelet.registered("x", timeout=0.05)
    await server.stop(None)
    assert (told[0].plugin_registered, told[0].error) == (False, error)


async def test_ignores_what_is_no_plugin(root: Path) -> None:
    (root / "file").write_text("")
    (root / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as hidden, socket.socket(socket.AF_UNIX) as dead:
        hidden.bind(str(root / ".hidden"))
        dead.bind(str(root / "dead-reg.sock"))
    server = PluginServer(options(root, registry_directory=root), Preparer())
    await server.start()
    async with KubeletStandIn(root) as kubelet:
        assert (await kubelet.registered(DRIVER)).socket == server.registration_socket
    await server.stop(1)
