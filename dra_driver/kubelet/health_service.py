"""DRAResourceHealth v1 and v1alpha1: a feed's lists as streams to the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import grpc

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.health import DeviceHealth, HealthFeed, HealthUnsupported
from dra_driver.kubelet.pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from dra_driver.kubelet.wire import Context, rpc_handler, service

# Offered together: kubelets before 1.37 know v1alpha1 only.
HEALTH_VERSIONS = ("v1", "v1alpha1")
MAX_MESSAGE_BYTES = 1024

_MESSAGES: Mapping[str, ModuleType] = {"v1": dra_health_v1_pb2, "v1alpha1": dra_health_v1alpha1_pb2}
_ELLIPSIS = b"..."


def health_handlers(feed: HealthFeed, clock: Callable[[], float]) -> list[grpc.GenericRpcHandler]:
    """One gRPC handler per version; ``clock`` gives Unix seconds for entries that carry no time of their own."""
    return [
        rpc_handler(
            service(messages.DESCRIPTOR, "DRAResourceHealth"),
            {"NodeWatchResources": partial(_watch, feed, clock, messages)},
        )
        for messages in (_MESSAGES[version] for version in HEALTH_VERSIONS)
    ]


def cut_message(text: str) -> str:
    """The text in at most 1024 bytes of UTF-8; what is cut ends with ``...``, never within a character."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return (encoded[: MAX_MESSAGE_BYTES - len(_ELLIPSIS)].decode(errors="ignore").encode() + _ELLIPSIS).decode()


async def _watch(
    feed: HealthFeed, clock: Callable[[], float], messages: ModuleType, request: Any, context: Context
) -> AsyncIterator[Any]:
    del request
    try:
        async for devices in feed.lists():
            yield _response(messages, devices, clock())
    except HealthUnsupported as error:
        # Makes the kubelet stop asking until the next registration.
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
    except EnvironmentFault as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def _response(messages: ModuleType, devices: Sequence[DeviceHealth], now: float) -> Any:
    response = messages.NodeWatchResourcesResponse()
    for device in devices:
        response.devices.add(
            device=messages.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=device.health.value,
            last_updated_time=int(now if device.checked_at is None else device.checked_at),
            health_check_timeout_seconds=device.check_timeout,
            message=cut_message(device.message),
        )
    return response
