"""A gRPC server at one socket path that stays there until it is stopped.

The kubelet deletes what it does not know in its directories, administrators clear them, and a directory may be created
anew while the driver runs. A unix socket whose name is gone can't be named again, so the server looks at its path every
second and, when its socket vanished, takes the path with a new server while the old one finishes its calls. A socket of
somebody else at the path is left alone and reported.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

import grpc
import grpc.aio

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet import sockets, wire

logger = logging.getLogger(__name__)


class Upkeep(Enum):
    """What a look at the socket's path found and did."""

    FINE = "fine"
    RESTORED = "restored"
    TAKEN = "taken by somebody else"


class UnixServer:
    """Serves the same handlers at the same path, whatever happens to the file."""

    def __init__(self, path: Path, handlers: Iterable[grpc.GenericRpcHandler], *, purpose: str) -> None:
        self.path = path
        self._handlers = tuple(handlers)
        self._purpose = purpose
        self._server: grpc.aio.Server | None = None
        self._placed: sockets.FileIdentity | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def listening(self) -> bool:
        """True between a successful start and stop."""
        return self._server is not None

    async def start(self) -> None:
        """Creates the directory if need be and serves.

        Raises:
            sockets.SocketInUse: somebody listens at the path.
            EnvironmentFault: directory or socket can't be created.
        """
        sockets.ensure_directory(self.path.parent, f"directory of the {self._purpose}")
        hidden = sockets.hidden_path(self.path)
        async with sockets.directory_lock(self.path.parent):
            sockets.check_free(self.path, self._purpose)
            server = wire.new_server(self._handlers)
            try:
                server.add_insecure_port(sockets.grpc_address(hidden))
                await server.start()
                self._placed = sockets.occupy(hidden, self.path)
            except RuntimeError as error:
                raise EnvironmentFault(f"{self._purpose} {self.path} can't be served: {error}") from error
            except BaseException:  # cancelled while starting, too
                await server.stop(None)
                raise
            self._server = server
        logger.debug("%s: listening on %s", self._purpose, self.path)

    async def keep(self) -> Upkeep:
        """Looks at the path; serves it again when the socket vanished.

        Raises:
            EnvironmentFault: it vanished and can't be created now; call again later.
        """
        found = sockets.identity(self.path)
        if found is not None and found == self._placed:
            return Upkeep.FINE
        owner = sockets.listener(self.path) if found is not None else None
        if owner is not None and owner.pid == os.getpid():
            # Only its mode, owner or label was changed.
            self._placed = found
            return Upkeep.FINE
        if owner is not None:
            return Upkeep.TAKEN
        previous = self._server
        self._server = self._placed = None
        if previous is not None:
            task = asyncio.create_task(self._retire(previous))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        await self.start()
        return Upkeep.RESTORED

    def owner(self) -> str:
        """Who listens at the path now, for people.

        Raises:
            EnvironmentFault: the path can't be examined.
        """
        return str(sockets.listener(self.path) or "nobody")

    async def withdraw(self) -> None:
        """Takes the socket off its path if it still is ours; calls on open connections go on.

        Raises:
            EnvironmentFault: it can't be removed.
        """
        placed, self._placed = self._placed, None
        if placed is not None and not await sockets.remove(self.path, placed):
            logger.info("%s %s was gone or replaced; nothing removed", self._purpose, self.path)

    async def stop(self, grace: float) -> None:
        """Withdraws the socket, refuses new calls, and gives running ones ``grace`` seconds."""
        try:
            await self.withdraw()
        finally:
            server, self._server = self._server, None
            if server is not None:
                await server.stop(grace)
            for task in tuple(self._retiring):
                task.cancel()
            await asyncio.gather(*self._retiring, return_exceptions=True)

    async def _retire(self, server: grpc.aio.Server) -> None:
        # Longer than the kubelet waits for any call (45 s); streams must be re-opened on the new socket.
        try:
            await server.stop(60.0)
        except asyncio.CancelledError:
            await server.stop(None)
            raise
