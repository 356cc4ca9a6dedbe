"""Unix sockets that two processes agree on by path: names that fit, no stolen sockets, none left behind.

A path must fit into ``sun_path``: 107 bytes and a NUL. When the telling name is too long, shorter ones are tried, so a
long driver name or a pod UID in it never stops a driver.

gRPC binds a path by removing whatever lies there and removes the path again when it stops, whoever owns it by then. So
the server binds to a hidden name beside the path and is moved there when it answers: the kubelet, which ignores hidden
names, never sees a socket that refuses; a stale socket is replaced in one step; and gRPC's own removal finds nothing.
What lies at the path is removed only while it is the very file that was put there, and replaced only when nobody
listens on it. Those steps hold a lock on the directory, since two instances of a driver may start and stop at the same
time.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import struct
from base64 import b32encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from dra_driver.errors import EnvironmentFault, InputError

MAX_PATH_BYTES = 107
_DIRECTORY_MODE = 0o750
_SOCKET_MODE = 0o600
_LOCK_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.02


class SocketInUse(EnvironmentFault):
    """Somebody listens on the path already."""


class FileIdentity(NamedTuple):
    """Which file lies at a path; inode numbers are reused at once on some file systems, hence the change time."""

    device: int
    inode: int
    changed_ns: int


class Peer(NamedTuple):
    """The process that listens on a socket; ``pid`` is 0 when it lives in another container."""

    pid: int
    uid: int

    def __str__(self) -> str:
        if self.pid <= 0:
            return f"a process of user {self.uid} in another container"
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return f"process {self.pid}"
        command = b" ".join(words).decode(errors="replace").strip()
        return f"process {self.pid} ({command[:200]})" if command else f"process {self.pid}"


def dra_socket(directory: Path, driver: str, pod_uid: str = "") -> Path:
    """``dra.sock`` in the driver's own directory, with the pod UID when several instances share the directory.

    Raises:
        InputError: no name fits below this directory.
    """
    # The last one makes room for a driver name of 63 bytes below the kubelet's usual directory.
    rolling = [f"dra-{pod_uid}.sock", f"dra-{_digest(pod_uid, 8)}.sock", f"dra-{_digest(pod_uid, 4)}.sock"]
    names = rolling if pod_uid else ["dra.sock"]
    return _first_fitting(directory, names, f"DRA socket of driver {driver}")


def registration_socket(directory: Path, driver: str, pod_uid: str = "") -> Path:
    """The socket in the kubelet's registration directory; names as the upstream Go helper chooses them.

    Raises:
        InputError: no name fits below this directory.
    """
    if pod_uid:
        both = f"{driver}\0{pod_uid}"
        names = [
            f"{driver}-{pod_uid}-reg.sock",
            f"{driver}-{_digest(pod_uid, 8)}-reg.sock",
            f"dra-{_digest(both, 16)}-reg.sock",
        ]
    else:
        names = [f"{driver}-reg.sock", f"dra-{_digest(driver, 16)}-reg.sock"]
    return _first_fitting(directory, names, f"registration socket of driver {driver}")


def grpc_address(path: Path) -> str:
    """The path as gRPC target; characters that mean something in a URI are encoded."""
    return "unix:" + quote(str(path), safe="/")


def hidden_path(path: Path) -> Path:
    """Where a socket may be bound before it is moved to ``path``: no longer than any name in use here, never twice the
    same, since a server that stops removes the name that it was bound to."""
    return path.with_name(_hidden_prefix(path) + _base32(os.urandom(3))[:3])


def identity(path: Path) -> FileIdentity | None:
    """The file at ``path``, None when there is none; a symbolic link is a file of its own."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileIdentity(found.st_dev, found.st_ino, found.st_ctime_ns)


def ensure_directory(directory: Path, purpose: str) -> None:
    """Creates the directory and its parents (mode 0750) unless it is there.

    Raises:
        EnvironmentFault: it can't be created, is something else, or was deleted under a mount of it.
    """
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        links = directory.stat().st_nlink
    except OSError as error:
        raise EnvironmentFault(
            f"{purpose} {directory} can't be created: {error.strerror}",
            hint="create it, or mount it from the node's file system",
        ) from error
    if links == 0:
        raise EnvironmentFault(
            f"{purpose} {directory} was deleted on the node while it is mounted here",
            hint="restart the driver's Pod to mount the new directory",
        )


def listener(path: Path) -> Peer | None:
    """Who listens on the socket; None when nobody does or no socket is there.

    Connecting is the only test that holds for processes in other containers as well. The connection is closed without a
    byte sent.

    Raises:
        EnvironmentFault: something other than a socket lies there, or it can't be examined.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise EnvironmentFault(f"{path} is not a socket", hint="move it away")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(str(path))
            pid, uid, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return None
    except BlockingIOError:  # the queue of connections is full, so there is a queue
        return Peer(0, os.lstat(path).st_uid)
    except OSError as error:
        raise EnvironmentFault(
            f"socket {path} can't be examined: {error.strerror}", hint="run as the user who owns it, or remove it"
        ) from error
    return Peer(pid, uid)


def occupy(hidden: Path, path: Path) -> FileIdentity:
    """Moves the listening socket at ``hidden`` to ``path``; call it inside ``directory_lock``, after ``check_free``.

    Raises:
        EnvironmentFault: the directory does not allow it.
    """
    try:
        os.chmod(hidden, _SOCKET_MODE)
        os.rename(hidden, path)
    except OSError as error:
        raise EnvironmentFault(f"socket {path} can't be put in place: {error.strerror}") from error
    placed = identity(path)
    if placed is None:
        raise EnvironmentFault(f"socket {path} vanished while it was created")
    return placed


def check_free(path: Path, purpose: str) -> None:
    """Makes sure that a socket may be bound at ``path``.

    Raises:
        SocketInUse: somebody listens there; the message says who.
        EnvironmentFault: the directory refuses a socket.
    """
    owner = listener(path)
    if owner is not None:
        raise SocketInUse(
            f"{purpose} {path} is in use by {owner}",
            hint="stop the other instance, or give each its pod UID so that both can run during a rolling update",
        )
    # gRPC does not say why it can't bind; the kernel does.
    hidden = hidden_path(path)
    try:
        _remove_leftovers(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.bind(str(hidden))
        hidden.unlink()
    except OSError as error:
        raise EnvironmentFault(
            f"{purpose} {path} can't be created: {error.strerror or error}",
            hint="the directory must exist, be writable, and be on a file system with unix sockets",
        ) from error


async def remove(path: Path, placed: FileIdentity) -> bool:
    """Removes the socket if it still is the file that was placed; False when it is gone or somebody else's.

    Raises:
        EnvironmentFault: it is ours and can't be removed.
    """
    if identity(path) != placed:
        return False
    async with directory_lock(path.parent):
        if identity(path) != placed:
            return False
        try:
            path.unlink()
        except OSError as error:
            raise EnvironmentFault(f"socket {path} can't be removed: {error.strerror}") from error
    return True


@asynccontextmanager
async def directory_lock(directory: Path) -> AsyncIterator[None]:
    """Exclusive among the instances of this driver on the node; leaves no file behind, ends with the process.

    Raises:
        EnvironmentFault: the directory is gone, or another instance holds the lock for seconds.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise EnvironmentFault(f"directory {directory} can't be opened: {error.strerror}") from error
    try:
        await _flock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


async def _flock(descriptor: int, directory: Path) -> None:
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES, errno.EINTR}:
                raise EnvironmentFault(f"directory {directory} can't be locked: {error.strerror}") from error
        else:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise EnvironmentFault(
                f"directory {directory} has been locked by another process for {_LOCK_SECONDS:g} s",
                hint=f"find it with: lsof +d {directory}",
            )
        await asyncio.sleep(_LOCK_POLL_SECONDS)


def _first_fitting(directory: Path, names: Sequence[str], purpose: str) -> Path:
    paths = [directory / name for name in names]
    for path in paths:
        if len(os.fsencode(path)) <= MAX_PATH_BYTES:
            return path
    shortest = min(paths, key=lambda path: len(os.fsencode(path)))
    raise InputError(
        f"{purpose}: path {shortest} has {len(os.fsencode(shortest))} bytes, a unix socket allows {MAX_PATH_BYTES}",
        hint="use a shorter directory",
    )


def _remove_leftovers(path: Path) -> None:
    """Hidden names that a process left when it was killed between binding and moving."""
    for leftover in path.parent.glob(_hidden_prefix(path) + "???"):
        if leftover.is_socket() and listener(leftover) is None:
            leftover.unlink(missing_ok=True)


def _hidden_prefix(path: Path) -> str:
    return "." + _base32(sha256(path.name.encode()).digest())[:3]


def _base32(data: bytes) -> str:
    return b32encode(data).decode().lower()


def _digest(text: str, size: int) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()[:size]).rstrip(b"=").decode()
