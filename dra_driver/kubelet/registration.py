"""Registration: what the driver tells the kubelet about itself, and what the kubelet made of it.

The kubelet asks GetInfo when it finds the socket, checks the answer, and reports the outcome. A refusal is kept and
shown (readiness, doctor) and answered with an error, as the upstream helper does; the kubelet then tries again with
backoff.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from dra_driver.kubelet.pb import registration_v1_pb2
from dra_driver.kubelet.wire import Context, rpc_handler, service

logger = logging.getLogger(__name__)

PLUGIN_TYPE = "DRAPlugin"


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """Whether the kubelet uses this driver.

    Attributes:
        registered: the kubelet's last word, False before it spoke and while the registration socket is not there.
        problem: what keeps the kubelet from using the driver, or will when the kubelet restarts, and what to do; empty
            while waiting for the kubelet is all there is to do.
    """

    registered: bool
    problem: str = ""


class RegistrationService:
    """Serves ``pluginregistration.Registration`` for one driver.

    Args:
        endpoint: absolute path of the DRA socket, empty when this socket serves DRA as well.
        supported: gRPC services offered, preferred first, e.g. ``v1.DRAPlugin``.
        changed: called with each new state.
    """

    def __init__(
        self, driver: str, endpoint: str, supported: tuple[str, ...], changed: Callable[[RegistrationState], None]
    ) -> None:
        self._driver = driver
        self._info = registration_v1_pb2.PluginInfo(
            type=PLUGIN_TYPE, name=driver, endpoint=endpoint, supported_versions=supported
        )
        self._changed = changed
        self._registered = asyncio.Event()
        self._said = RegistrationState(registered=False)
        self._troubles: dict[str, str] = {}
        self.state = self._said

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of the service."""
        return rpc_handler(
            service(registration_v1_pb2.DESCRIPTOR, "Registration"),
            {"GetInfo": self._get_info, "NotifyRegistrationStatus": self._notify},
        )

    def void(self, problem: str = "") -> None:
        """What the kubelet said about this socket counts no more."""
        self._said = RegistrationState(registered=False, problem=problem)
        self._update()

    def trouble(self, subject: str, problem: str) -> None:
        """Something is wrong with ``subject``; an empty ``problem``: not any more."""
        if problem:
            self._troubles[subject] = problem
        else:
            self._troubles.pop(subject, None)
        self._update()

    async def wait_registered(self) -> None:
        """Returns once the kubelet has registered the driver."""
        await self._registered.wait()

    async def _get_info(
        self, request: registration_v1_pb2.InfoRequest, context: Context
    ) -> registration_v1_pb2.PluginInfo:
        del request, context
        logger.debug("%s: the kubelet asked for the plugin's info", self._driver)
        return self._info

    async def _notify(
        self, request: registration_v1_pb2.RegistrationStatus, context: Context
    ) -> registration_v1_pb2.RegistrationStatusResponse:
        if request.plugin_registered:
            logger.info("%s: registered with the kubelet", self._driver)
            self._said = RegistrationState(registered=True)
            self._update()
            return registration_v1_pb2.RegistrationStatusResponse()
        reason = request.error or "the kubelet gave no reason"
        logger.error("%s: the kubelet refused the registration: %s", self._driver, reason)
        self.void(f"the kubelet refused driver {self._driver}: {reason}")
        await context.abort(grpc.StatusCode.UNKNOWN, f"failed registration process: {request.error}")

    def _update(self) -> None:
        problem = "; ".join(self._troubles.values()) or self._said.problem
        state = RegistrationState(self._said.registered, problem)
        if state == self.state:
            return
        self.state = state
        if state.registered:
            self._registered.set()
        else:
            self._registered.clear()
        self._changed(state)
