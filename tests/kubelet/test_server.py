"""A driver's life on a node: start, registration, upkeep of the sockets, rolling update, stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.kubelet import sockets
from dra_driver.kubelet.health import ConstantHealth, DeviceHealth, Health
from dra_driver.kubelet.pb import dra_health_v1_pb2, dra_v1_pb2, registration_v1_pb2
from dra_driver.kubelet.registration import RegistrationState
from dra_driver.kubelet.server import PluginOptions, PluginServer
from dra_driver.kubelet.sockets import SocketInUse, grpc_address
from dra_driver.kubelet.standin import KubeletStandIn
from dra_driver.kubelet.wire import new_channel, service, streamed, unary
from tests.kubelet.conftest import Client
from tests.kubelet.plugin import CLAIM, DRIVER, OTHER, Observer, Preparer, device, eventually, options, sockets_in

DRA = ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
HEALTH = ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
REGISTRATION = service(registration_v1_pb2.DESCRIPTOR, "Registration")


@asynccontextmanager
async def served(root: Path, preparer: Preparer | None = None, **changes: Any) -> AsyncIterator[PluginServer]:
    arguments = {name: changes.pop(name) for name in ("health", "observer", "on_registration") if name in changes}
    server = PluginServer(options(root, **changes), preparer or Preparer(), **arguments)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(5)


@asynccontextmanager
async def connected(path: Path, authority: str | None = None) -> AsyncIterator[grpc.aio.Channel]:
    if authority is None:
        channel = new_channel(grpc_address(path))
    else:
        channel = grpc.aio.insecure_channel(grpc_address(path), options=(("grpc.default_authority", authority),))
    try:
        yield channel
    finally:
        await channel.close(None)


async def info(path: Path, authority: str | None = None) -> registration_v1_pb2.PluginInfo:
    async with connected(path, authority) as channel:
        answer: registration_v1_pb2.PluginInfo = await unary(channel, REGISTRATION, "GetInfo")(
            registration_v1_pb2.InfoRequest()
        )
        return answer


async def notify(path: Path, registered: bool, error: str = "") -> None:
    async with connected(path) as channel:
        await unary(channel, REGISTRATION, "NotifyRegistrationStatus")(
            registration_v1_pb2.RegistrationStatus(plugin_registered=registered, error=error)
        )


def health_stream(channel: grpc.aio.Channel) -> Any:
    watch = streamed(channel, service(dra_health_v1_pb2.DESCRIPTOR, "DRAResourceHealth"), "NodeWatchResources")
    return watch(dra_health_v1_pb2.NodeWatchResourcesRequest())


@pytest.mark.parametrize(
    ("changes", "endpoint", "supported"),
    [
        pytest.param({}, f"plugins/{DRIVER}/dra.sock", DRA, id="two-sockets"),
        pytest.param({"single_socket": True}, "", DRA, id="one-socket"),
        pytest.param({"versions": ("v1beta1",)}, f"plugins/{DRIVER}/dra.sock", DRA[1:], id="v1beta1-only"),
        pytest.param({"versions": ("v1beta1", "v1")}, f"plugins/{DRIVER}/dra.sock", DRA, id="v1-always-first"),
        pytest.param({"health": ConstantHealth(())}, f"plugins/{DRIVER}/dra.sock", DRA + HEALTH, id="with-health"),
    ],
)
async def test_plugin_info(root: Path, changes: dict[str, Any], endpoint: str, supported: list[str]) -> None:
    async with served(root, **changes) as server:
        answer = await info(server.registration_socket)
    assert (answer.type, answer.name) == ("DRAPlugin", DRIVER)
    assert answer.endpoint == (str(root / endpoint) if endpoint else "")
    assert list(answer.supported_versions) == supported


async def test_percent_encoded_authority(root: Path) -> None:
    async with served(root) as server:
        answer = await info(server.registration_socket, authority=str(server.registration_socket).replace("/", "%2F"))
    assert answer.name == DRIVER


async def test_sockets_and_directories_are_private(root: Path) -> None:
    async with served(root) as server:
        for path in (server.endpoint, server.registration_socket):
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o750
        assert [path.name for path in server.registration_socket.parent.iterdir()] == [f"{DRIVER}-reg.sock"]
        assert [path.name for path in server.endpoint.parent.iterdir()] == ["dra.sock"]
    assert sockets_in(root) == []


async def test_registered_by_the_kubelet(root: Path) -> None:
    states: list[RegistrationState] = []
    async with served(root, on_registration=states.append) as server:
        assert server.registration == RegistrationState(registered=False)
        await notify(server.registration_socket, registered=True)
        await server.wait_registered()
        assert server.registration == RegistrationState(registered=True)
        await notify(server.registration_socket, registered=True)
    assert states == [
        RegistrationState(registered=True),
        RegistrationState(registered=False, problem=f"driver {DRIVER} is stopping"),
    ]


async def test_refused_by_the_kubelet(root: Path) -> None:
    async with served(root) as server:
        await notify(server.registration_socket, registered=True)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await notify(server.registration_socket, registered=False, error="plugin validation failed")
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert caught.value.details() == "failed registration process: plugin validation failed"
        assert server.registration == RegistrationState(
            registered=False, problem=f"the kubelet refused driver {DRIVER}: plugin validation failed"
        )


@pytest.mark.parametrize("changes", [{}, {"single_socket": True}], ids=["two-sockets", "one-socket"])
async def test_serves_claims(root: Path, changes: dict[str, Any]) -> None:
    async with served(root, **changes), KubeletStandIn(root / "plugins_registry") as kubelet:
        plugin = await kubelet.registered(DRIVER)
        assert plugin.version == "v1.DRAPlugin"
        assert await kubelet.prepare(DRIVER, [CLAIM, OTHER]) == {"uid-a": (device(CLAIM),), "uid-b": (device(OTHER),)}
        assert await kubelet.unprepare(DRIVER, [CLAIM, OTHER]) == {"uid-a": "", "uid-b": ""}
        assert sockets_in(root) == sorted(path.name for path in {plugin.socket, Path(plugin.endpoint)})


async def test_several_drivers_in_one_process(root: Path) -> None:
    first, second = Preparer(), Preparer()
    names = ("gpu.example.com", "compute-domain.example.com")
    async with (
        served(root, first, driver=names[0]),
        served(root, second, driver=names[1]),
        KubeletStandIn(root / "plugins_registry") as kubelet,
    ):
        for name in names:
            await kubelet.registered(name)
        await kubelet.prepare(names[0], [CLAIM])
        await kubelet.prepare(names[1], [OTHER])
    assert (first.prepared, second.prepared) == ([(CLAIM,)], [(OTHER,)])


async def test_the_dra_socket_serves_before_the_registration_socket_exists(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, list[str]]] = []
    occupy = sockets.occupy

    def noting(hidden: Path, path: Path) -> sockets.FileIdentity:
        live = [name for name in sockets_in(root) if not name.startswith(".")]
        order.append((path.name, live))
        # What is about to become visible answers already.
        assert sockets.listener(hidden) is not None
        return occupy(hidden, path)

    monkeypatch.setattr(sockets, "occupy", noting)
    async with served(root):
        pass
    assert order == [("dra.sock", []), (f"{DRIVER}-reg.sock", ["dra.sock"])]


async def test_stale_sockets_are_replaced(root: Path) -> None:
    paths = [root / "plugins" / DRIVER / "dra.sock", root / "plugins_registry" / f"{DRIVER}-reg.sock"]
    for path in paths:
        path.parent.mkdir(parents=True)
        for stale in (path, sockets.hidden_path(path)):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(stale))
    async with served(root) as server:
        assert (await info(server.registration_socket)).name == DRIVER
        assert all(len(list(path.parent.iterdir())) == 1 for path in paths)


@pytest.mark.parametrize("changes", [{}, {"single_socket": True}], ids=["two-sockets", "one-socket"])
async def test_a_live_socket_is_never_taken(root: Path, changes: dict[str, Any]) -> None:
    async with served(root, **changes) as first:
        second = PluginServer(options(root, **changes), Preparer())
        with pytest.raises(
            SocketInUse, match=rf"of driver {DRIVER} .* is in use by process {os.getpid()} .*\(stop the other"
        ):
            await second.start()
        assert (await info(first.registration_socket)).name == DRIVER


async def test_a_live_registration_socket_stops_the_start_and_leaves_nothing(root: Path) -> None:
    registry = root / "plugins_registry"
    registry.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(registry / f"{DRIVER}-reg.sock"))
        other.listen()
        with pytest.raises(SocketInUse, match="registration socket of driver"):
            await PluginServer(options(root), Preparer()).start()
        assert sockets_in(root) == [f"{DRIVER}-reg.sock"]


async def test_something_else_at_the_path_is_left_alone(root: Path) -> None:
    path = root / "plugins" / DRIVER / "dra.sock"
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(EnvironmentFault, match="is not a socket"):
        await PluginServer(options(root), Preparer()).start()
    assert path.read_text() == "precious"


async def test_rolling_update(root: Path) -> None:
    old, new = Preparer(), Preparer()
    async with KubeletStandIn(root / "plugins_registry") as kubelet:
        async with served(root, old, pod_uid="uid-old") as first:
            await kubelet.registered(DRIVER)
            await kubelet.prepare(DRIVER, [CLAIM])
            second = PluginServer(options(root, pod_uid="uid-new"), new)
            await second.start()
            await second.wait_registered()
            assert sockets_in(root) == sorted(
                ["dra-uid-old.sock", "dra-uid-new.sock", f"{DRIVER}-uid-old-reg.sock", f"{DRIVER}-uid-new-reg.sock"]
            )
            await eventually(lambda: kubelet._find(DRIVER).endpoint == str(second.endpoint))  # type: ignore[union-attr]
            await kubelet.prepare(DRIVER, [OTHER])
            assert first.endpoint != second.endpoint
        assert sockets_in(root) == ["dra-uid-new.sock", f"{DRIVER}-uid-new-reg.sock"]
        await kubelet.unprepare(DRIVER, [CLAIM])
        await second.stop(5)
        await kubelet.deregistered(DRIVER)
    assert (old.prepared, new.prepared) == ([(CLAIM,)], [(OTHER,)])
    assert (old.unprepared, new.unprepared) == ([], [(CLAIM,)])
    assert sockets_in(root) == []


@pytest.mark.parametrize("which", ["registration", "dra"])
async def test_a_socket_that_vanishes_comes_back(root: Path, which: str) -> None:
    preparer = Preparer()
    async with served(root, preparer) as server, KubeletStandIn(root / "plugins_registry") as kubelet:
        await kubelet.registered(DRIVER)
        path = server.registration_socket if which == "registration" else server.endpoint
        before = sockets.identity(path)
        path.unlink()
        await eventually(path.exists)
        assert sockets.identity(path) != before
        await eventually(lambda: server.registration == RegistrationState(registered=True))
        async with connected(server.endpoint) as channel:
            assert list(await Client(channel, dra_v1_pb2).prepare(CLAIM)) == ["uid-a"]


async def test_calls_outlive_their_vanished_socket(root: Path) -> None:
    preparer = Preparer(gate=asyncio.Event())
    async with served(root, preparer) as server, connected(server.endpoint) as channel:
        call = asyncio.ensure_future(Client(channel, dra_v1_pb2).prepare(CLAIM))
        await eventually(lambda: preparer.running == 1)
        server.endpoint.unlink()
        await eventually(server.endpoint.exists)
        assert preparer.gate is not None
        preparer.gate.set()
        assert (await call)["uid-a"].error == ""


async def test_a_registration_directory_that_is_recreated(root: Path) -> None:
    async with served(root) as server:
        await notify(server.registration_socket, registered=True)
        shutil.rmtree(root / "plugins_registry")
        await eventually(server.registration_socket.exists)
        await eventually(lambda: server.registration == RegistrationState(registered=False))
        assert (await info(server.registration_socket)).name == DRIVER


async def test_a_registration_directory_that_comes_late(root: Path) -> None:
    blocker = root / "plugins_registry"
    blocker.write_text("")
    async with served(root) as server:
        assert server.registration == RegistrationState(
            registered=False,
            problem=(
                f"directory of the registration socket of driver {DRIVER} {blocker} can't be created: File exists "
                "(create it, or mount it from the node's file system)"
            ),
        )
        async with connected(server.endpoint) as channel:
            assert list(await Client(channel, dra_v1_pb2).prepare(CLAIM)) == ["uid-a"]
        blocker.unlink()
        await eventually(server.registration_socket.exists)
        await eventually(lambda: server.registration.problem == "")


async def test_a_socket_that_somebody_replaced_is_reported_and_left(root: Path) -> None:
    theirs = root / "theirs.sock"
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); sys.stdin.read()"
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, theirs, stdin=asyncio.subprocess.PIPE)
    try:
        await eventually(lambda: sockets.listener(theirs) is not None)
        async with served(root) as server:
            theirs.rename(server.registration_socket)
            placed = sockets.identity(server.registration_socket)
            await eventually(lambda: f"was replaced by process {other.pid} " in server.registration.problem)
            await server.stop(1)
            assert sockets.identity(server.registration_socket) == placed
    finally:
        other.kill()
        await other.wait()


async def test_the_path_is_taken_back_when_the_other_process_ends(root: Path) -> None:
    async with served(root) as server:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(root / "dead.sock"))
        (root / "dead.sock").rename(server.registration_socket)
        left = sockets.identity(server.registration_socket)
        await eventually(lambda: sockets.identity(server.registration_socket) != left)
        assert (await info(server.registration_socket)).name == DRIVER


async def test_touching_a_socket_changes_nothing(root: Path) -> None:
    async with served(root) as server:
        await notify(server.registration_socket, registered=True)
        server.registration_socket.chmod(0o660)
        touched = sockets.identity(server.registration_socket)
        await asyncio.sleep(0.1)
        assert sockets.identity(server.registration_socket) == touched
        assert server.registration == RegistrationState(registered=True)
    assert sockets_in(root) == []


async def test_stop_lets_running_calls_finish_and_refuses_new_ones(root: Path) -> None:
    preparer, observer = Preparer(gate=asyncio.Event()), Observer()
    server = PluginServer(options(root), preparer, observer=observer)
    await server.start()
    async with connected(server.endpoint) as channel:
        client = Client(channel, dra_v1_pb2)
        running = asyncio.ensure_future(client.prepare(CLAIM))
        await eventually(lambda: preparer.running == 1)
        stopping = asyncio.ensure_future(server.stop(30))
        await eventually(lambda: not server.registration_socket.exists())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.prepare(OTHER)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert f"driver {DRIVER} on this node is stopping" in str(caught.value.details())
        assert not stopping.done()
        assert server.endpoint.exists()
        assert preparer.gate is not None
        preparer.gate.set()
        assert (await running)["uid-a"].error == ""
        await stopping
    assert preparer.prepared == [(CLAIM,)]
    assert sorted(call.outcome for call in observer.finished) == ["ok", "refused"]
    assert sockets_in(root) == []


async def test_stop_cancels_what_outlasts_the_grace(root: Path) -> None:
    preparer, observer = Preparer(gate=asyncio.Event()), Observer()
    server = PluginServer(options(root), preparer, observer=observer)
    await server.start()
    async with connected(server.endpoint) as channel:
        running = asyncio.ensure_future(Client(channel, dra_v1_pb2).prepare(CLAIM))
        await eventually(lambda: preparer.running == 1)
        await server.stop(0.05)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "stopped before the call was done" in str(caught.value.details())
    assert preparer.running == 0
    assert [call.outcome for call in observer.finished] == ["error"]


async def test_stop_ends_health_streams_at_once(root: Path) -> None:
    health = ConstantHealth([DeviceHealth("node-1", "gpu-0", Health.HEALTHY)])
    server = PluginServer(options(root), Preparer(), health=health)
    await server.start()
    async with connected(server.endpoint) as channel:
        stream = health_stream(channel)
        assert (await stream.read()).devices[0].device.device_name == "gpu-0"
        await server.stop(3600)
        assert await stream.read() is grpc.aio.EOF


async def test_stop_before_and_after_start(root: Path) -> None:
    server = PluginServer(options(root), Preparer())
    await server.stop(1)
    await server.start()
    await server.stop(1)
    await server.stop(1)
    assert sockets_in(root) == []


async def test_without_health_source_no_health_service(root: Path) -> None:
    async with served(root) as server, connected(server.endpoint) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_stream(channel).read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a\0b"])
def test_driver_names_that_are_no_file_names(root: Path, name: str) -> None:
    with pytest.raises(InputError, match="can't be part of a socket's name"):
        options(root, driver=name)


@pytest.mark.parametrize("versions", [(), ("v2",), ("v1", "v1alpha4")])
def test_versions_that_are_not_served(versions: Any) -> None:
    with pytest.raises(InputError, match=r"DRA API versions .* expected some of \['v1', 'v1beta1'\]"):
        PluginOptions(driver=DRIVER, versions=versions)


def test_a_path_too_long_is_an_input_error_before_anything_happens(root: Path) -> None:
    with pytest.raises(InputError, match="a unix socket allows 107"):
        PluginServer(options(root, plugins_directory=root / ("d" * 100)), Preparer())
    assert list(root.iterdir()) == []
