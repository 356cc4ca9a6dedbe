"""Names, limits, and whose socket it is."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.kubelet import sockets

UID = "6a1f3c1e-0e4e-4f0e-9d0a-1f0b7a3c2d4e"
LONG = "a-very-long-driver-name-for-a-very-special-device.example.com"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")


@pytest.mark.parametrize(
    ("directory", "driver", "uid", "name"),
    [
        pytest.param(REGISTRY, "gpu.nvidia.com", "", "gpu.nvidia.com-reg.sock", id="usual"),
        pytest.param(REGISTRY, LONG, "", f"{LONG}-reg.sock", id="long-name-still-fits"),
        pytest.param(Path("/" + "d" * 50), LONG, "", "dra-wVAblEZ7XI5ks3GrodaLkQ-reg.sock", id="long-directory"),
        pytest.param(REGISTRY, "gpu.nvidia.com", UID, f"gpu.nvidia.com-{UID}-reg.sock", id="rolling"),
        pytest.param(
            REGISTRY, "compute-domain.nvidia.com", UID, f"compute-domain.nvidia.com-{UID}-reg.sock", id="rolling-second"
        ),
        pytest.param(Path("/" + "d" * 40), "a" * 40, UID, "a" * 40 + "-VU3j_hGDJFU-reg.sock", id="rolling-short-uid"),
        pytest.param(Path("/" + "d" * 65), LONG, UID, "dra-4Cgn2KDuRThJAhmNWNMNcQ-reg.sock", id="rolling-digest"),
    ],
)
def test_registration_socket_names(directory: Path, driver: str, uid: str, name: str) -> None:
    path = sockets.registration_socket(directory, driver, uid)
    assert path == directory / name
    assert len(os.fsencode(path)) <= 107


@pytest.mark.parametrize(
    ("length", "name"),
    [
        pytest.param(107 - len("/driver-reg.sock"), "driver-reg.sock", id="107-bytes-fit"),
        pytest.param(108 - len("/driver-reg.sock"), None, id="108-bytes-do-not"),
    ],
)
def test_the_limit_is_exact(length: int, name: str | None) -> None:
    directory = Path("/" + "d" * (length - 1))
    if name is not None:
        assert sockets.registration_socket(directory, "driver").name == name
        return
    with pytest.raises(InputError, match=r"has 108 bytes, a unix socket allows 107 \(use a shorter directory\)"):
        sockets.registration_socket(directory, "driver")


def test_the_limit_counts_bytes() -> None:
    directory = Path("/" + "ü" * 47)
    with pytest.raises(InputError, match=r"registration socket of driver gpu: path .* has 108 bytes"):
        sockets.registration_socket(directory, "gpu")


def test_the_kernel_agrees_with_the_limit(tmp_path: Path) -> None:
    for length, fits in ((107, True), (108, False)):
        name = "n" * (length - len(os.fsencode(tmp_path)) - 1)
        with socket.socket(socket.AF_UNIX) as probe:
            if fits:
                probe.bind(str(tmp_path / name))
            else:
                with pytest.raises(OSError, match="too long"):
                    probe.bind(str(tmp_path / name))


@pytest.mark.parametrize(
    ("uid", "name"),
    [
        pytest.param("", "dra.sock", id="one-instance"),
        pytest.param(UID, f"dra-{UID}.sock", id="rolling"),
    ],
)
def test_dra_socket_names(uid: str, name: str) -> None:
    directory = Path("/var/lib/kubelet/plugins/gpu.nvidia.com")
    assert sockets.dra_socket(directory, "gpu.nvidia.com", uid) == directory / name


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        pytest.param(Path("/" + "d" * 75), "dra-VU3j_hGDJFU.sock", id="digest"),
        pytest.param(Path("/var/lib/kubelet/plugins") / ("n" * 63), "dra-VU3j_g.sock", id="longest-driver-name"),
    ],
)
def test_dra_socket_falls_back_to_a_digest_of_the_uid(directory: Path, name: str) -> None:
    assert sockets.dra_socket(directory, "x", UID) == directory / name


def test_names_of_two_instances_never_meet() -> None:
    directory = Path("/" + "d" * 65)
    names = {
        sockets.registration_socket(directory, driver, uid) for driver in ("a" * 50, "b" * 50) for uid in (UID, "x")
    }
    assert len(names) == 4


@pytest.mark.parametrize("name", ["dra.sock", f"{LONG}-reg.sock"])
def test_hidden_path_is_hidden_and_no_longer_than_any_name(name: str) -> None:
    hidden = sockets.hidden_path(REGISTRY / name)
    assert len({sockets.hidden_path(REGISTRY / name) for _ in range(8)}) > 1
    assert hidden.parent == REGISTRY
    assert hidden.name.startswith(".")
    assert len(hidden.name) <= len("dra.sock")


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def test_listener_names_the_process(tmp_path: Path) -> None:
    path = tmp_path / "live.sock"
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        peer = sockets.listener(path)
        assert peer is not None
        assert peer.pid == process.pid
        assert str(peer).startswith(f"process {process.pid} ({sys.executable} -c import socket")
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    assert path.is_socket()
    assert sockets.listener(path) is None


def test_listener_with_a_full_queue_counts(tmp_path: Path) -> None:
    path = tmp_path / "busy.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(0)
        clients = []
        try:
            for _ in range(3):
                client = socket.socket(socket.AF_UNIX)
                clients.append(client)
                client.setblocking(False)
                if client.connect_ex(str(path)) != 0:
                    break
            assert sockets.listener(path) is not None
        finally:
            for client in clients:
                client.close()


def test_peer_in_another_container() -> None:
    assert str(sockets.Peer(0, 0)) == "a process of user 0 in another container"


def test_listener_of_nothing(tmp_path: Path) -> None:
    assert sockets.listener(tmp_path / "none.sock") is None
    assert sockets.listener(tmp_path / "no-directory" / "none.sock") is None


@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
def test_what_is_not_a_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "dra.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "target")
    with pytest.raises(EnvironmentFault, match=r"dra\.sock is not a socket \(move it away\)"):
        sockets.check_free(path, "DRA socket")
    assert os.path.lexists(path)


def test_check_free_names_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "dra.sock"
    with (
        listening(path),
        pytest.raises(sockets.SocketInUse, match=rf"DRA socket .*dra\.sock is in use by process {os.getpid()} "),
    ):
        sockets.check_free(path, "DRA socket")


def test_check_free_tells_the_kernels_reason(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"registration socket .* can't be created: No such file or directory"):
        sockets.check_free(tmp_path / "none" / "x-reg.sock", "registration socket")


async def test_remove_takes_only_the_own_file(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with listening(path):
        placed = sockets.identity(path)
        assert placed is not None
        path.unlink()
        assert not await sockets.remove(path, placed)
        with listening(path):
            assert not await sockets.remove(path, placed)
            assert path.is_socket()
            mine = sockets.identity(path)
            assert mine is not None
            assert await sockets.remove(path, mine)
            assert not path.exists()


async def test_directory_lock_excludes_and_ends(tmp_path: Path) -> None:
    order = []

    async def second() -> None:
        async with sockets.directory_lock(tmp_path):
            order.append("second")

    async with sockets.directory_lock(tmp_path):
        task = asyncio.create_task(second())
        await asyncio.sleep(0.05)
        order.append("first")
    await task
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


async def test_directory_lock_gives_up_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_LOCK_SECONDS", 0.05)
    async with sockets.directory_lock(tmp_path):
        with pytest.raises(EnvironmentFault, match="has been locked by another process"):
            async with sockets.directory_lock(tmp_path):
                pytest.fail("locked twice")


def test_ensure_directory_creates_parents(tmp_path: Path) -> None:
    directory = tmp_path / "plugins" / "gpu.example.com"
    sockets.ensure_directory(directory, "plugin directory")
    assert directory.stat().st_mode & 0o777 == 0o750
    sockets.ensure_directory(directory, "plugin directory")


def test_ensure_directory_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "plugins").write_text("")
    with pytest.raises(EnvironmentFault, match=r"plugin directory .*/plugins/x can't be created: Not a directory"):
        sockets.ensure_directory(tmp_path / "plugins" / "x", "plugin directory")


def test_ensure_directory_that_was_deleted_under_its_mount(tmp_path: Path) -> None:
    # /proc/self/fd/N leads to the deleted directory as a bind mount of it does.
    directory = tmp_path / "registry"
    directory.mkdir()
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        directory.rmdir()
        with pytest.raises(EnvironmentFault, match=r"was deleted on the node while it is mounted here \(restart"):
            sockets.ensure_directory(Path(f"/proc/self/fd/{descriptor}"), "registration directory")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock", "unix:/var/lib/kubelet/plugins/gpu.nvidia.com/dra.sock"),
        ("/a b/100%/ü.sock", "unix:/a%20b/100%25/%C3%BC.sock"),
    ],
)
def test_grpc_address(path: str, address: str) -> None:
    assert sockets.grpc_address(Path(path)) == address
