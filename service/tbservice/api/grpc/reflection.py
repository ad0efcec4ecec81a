"""`grpc.reflection.v1alpha`: lists the services and their messages, for tools such as grpcurl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import grpc
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection, reflection_pb2

from tbservice.api.grpc.calls import CallRunner
from tbservice.api.grpc.metadata import Context
from tbservice.errors import MalformedRequest


def make_reflection_handler(runner: CallRunner, services: Iterable[str]) -> grpc.GenericRpcHandler:
    """Return the handler of the reflection service, for services with these names."""
    servicer = reflection.aio.ReflectionServicer([*services, reflection.SERVICE_NAME])

    async def describe(context: Context) -> None:
        async for answer in servicer.ServerReflectionInfo(_requests(context), context):
            await context.write(answer.SerializeToString())

    return grpc.method_handlers_generic_handler(
        reflection.SERVICE_NAME,
        {
            "ServerReflectionInfo": runner.open_handler(
                "ServerReflection/ServerReflectionInfo", describe
            )
        },
    )


async def _requests(
    context: Context,
) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    while isinstance(message := await context.read(), bytes):
        try:
            yield reflection_pb2.ServerReflectionRequest.FromString(message)
        except DecodeError as error:
            raise MalformedRequest("the message is not a ServerReflectionRequest") from error
