"""Binds Python functions to the methods of the contracts in ``proto/``, and calls them.

Method paths, message types and streaming come from the service descriptors that the generated messages carry, so a
contract is written down once. A behaviour is an async function ``(request, context) -> response`` or, for a streaming
method, an async generator function; everything on this edge is asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Behaviour: TypeAlias = "Callable[[Any, Context], Awaitable[Message] | AsyncIterator[Message]]"

# A unix socket between two processes of one node needs neither TCP port sharing nor a proxy from the environment.
SERVER_OPTIONS = (("grpc.so_reuseport", 0),)
CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)


def service(contract: FileDescriptor, name: str) -> ServiceDescriptor:
    """The service ``name`` of a contract, e.g. ``service(dra_v1_pb2.DESCRIPTOR, "DRAPlugin")``."""
    descriptor: ServiceDescriptor = contract.services_by_name[name]
    return descriptor


def rpc_handler(
    descriptor: ServiceDescriptor, behaviours: Mapping[str, Behaviour], *, served_as: str | None = None
) -> grpc.GenericRpcHandler:
    """Serves every method of the service; ``served_as`` replaces its full name in the method paths.

    Raises:
        KeyError: a method of the contract has no behaviour (a bug, found at start).
    """
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in descriptor.methods:
        request, _ = _message_types(method)
        handler = (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )
        methods[method.name] = handler(
            behaviours[method.name], request_deserializer=request.FromString, response_serializer=_serialise
        )
    return grpc.method_handlers_generic_handler(served_as or descriptor.full_name, methods)


def new_server(handlers: Iterable[grpc.GenericRpcHandler]) -> grpc.aio.Server:
    """A server that listens nowhere yet."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers(tuple(handlers))
    return server


def new_channel(address: str, *, max_message_bytes: int | None = None) -> grpc.aio.Channel:
    """A channel to ``unix:<path>`` or ``host:port``; ``max_message_bytes`` lifts gRPC's limit of 4 MiB on answers."""
    limit = () if max_message_bytes is None else (("grpc.max_receive_message_length", max_message_bytes),)
    return grpc.aio.insecure_channel(address, options=(*CHANNEL_OPTIONS, *limit))


def unary(channel: grpc.aio.Channel, descriptor: ServiceDescriptor, method: str) -> Callable[..., Awaitable[Any]]:
    """A callable ``(request, timeout=seconds)`` for one method; raises ``grpc.aio.AioRpcError``."""
    _, response = _message_types(descriptor.methods_by_name[method])
    return channel.unary_unary(
        f"/{descriptor.full_name}/{method}", request_serializer=_serialise, response_deserializer=response.FromString
    )


def streamed(
    channel: grpc.aio.Channel, descriptor: ServiceDescriptor, method: str
) -> Callable[..., AsyncIterable[Any]]:
    """A callable ``(request)`` that gives the answers of one streaming method; raises ``grpc.aio.AioRpcError``."""
    _, response = _message_types(descriptor.methods_by_name[method])
    return channel.unary_stream(
        f"/{descriptor.full_name}/{method}", request_serializer=_serialise, response_deserializer=response.FromString
    )


def _message_types(method: MethodDescriptor) -> tuple[type[Message], type[Message]]:
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


def _serialise(message: Message) -> bytes:
    return message.SerializeToString()
