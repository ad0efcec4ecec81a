"""One call that was admitted: what it says, and how its method gets its work done."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from starlette.concurrency import run_in_threadpool

from tbservice import limits
from tbservice.admission.admitted import AdmittedRequest
from tbservice.api.grpc.metadata import Metadata
from tbservice.errors import MalformedRequest, TooLarge
from tbservice.ingest.field_counts import (
    FIELD_BYTES_MIN,
    CountedFields,
    MalformedMessage,
    count_fields,
)

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Request = TypeVar("_Request", bound=Message)

GRPC_MESSAGE_FIELDS_MAX: Final = 2_000_000
"""Fields in one message of a gRPC client: built, each empty message takes 64 bytes of memory."""


@dataclass(frozen=True, slots=True)
class Call:
    """The token, metadata and message of a call, whose turn is held."""

    secret: str
    metadata: Metadata
    message: bytes
    admitted: AdmittedRequest

    def parse(self, kind: type[_Request]) -> _Request:
        """Return the message; for large ones, call it in a thread.

        Raises MalformedRequest, or TooLarge if it has too many fields.
        """
        check_count(self.message, kind)
        try:
            return kind.FromString(self.message)
        except DecodeError as error:
            raise MalformedRequest(f"the message is not a {kind.DESCRIPTOR.full_name}") from error

    async def in_thread(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Call the function in a thread, and wait for its end even if the client has left.

        Its turn is a thread and a connection, which are in use until then. With a large message,
        it first waits for the caller's share of decoding. Raises TooManyRequests.
        """
        async with self._decoding():
            work = asyncio.ensure_future(run_in_threadpool(function, *args, **kwargs))
            left: asyncio.CancelledError | None = None
            while not work.done():
                try:
                    await asyncio.wait({work})
                except asyncio.CancelledError as error:
                    left = error
            if left is None:
                return work.result()
            if not work.cancelled():
                work.exception()  # retrieved: nobody waits for it
            raise left

    @asynccontextmanager
    async def without_turn(self) -> AsyncIterator[None]:
        """Let other requests work during the block, which needs no thread and no connection.

        Raises TooManyRequests at its end, if waiting for the turn takes too long.
        """
        self.admitted.turn.release()
        yield
        await self.admitted.turn.wait()

    @asynccontextmanager
    async def _decoding(self) -> AsyncIterator[None]:
        size = len(self.message)
        if size < limits.QUEUED_DECODING_BYTES_MIN:
            yield
            return
        async with self.admitted.shares.decoded_bytes.turn(self.admitted.caller, size):
            yield


def check_count(message: bytes, kind: type[Message]) -> None:
    """Raise TooLarge if a message of this kind has more than `GRPC_MESSAGE_FIELDS_MAX` fields.

    Fields within messages that repeat nothing are not counted: they are as many as the messages.
    Raises MalformedRequest for some bytes that are no such message; others pass, and fail in
    decoding. Messages too short to exceed the limit are not read.
    """
    limit = GRPC_MESSAGE_FIELDS_MAX
    if len(message) <= FIELD_BYTES_MIN * limit:
        return
    name = kind.DESCRIPTOR.full_name
    try:
        count = count_fields(message, _find_counted(kind.DESCRIPTOR), limit)
    except MalformedMessage as error:
        raise MalformedRequest(f"the message is not a {name}: {error}") from error
    if count > limit:
        raise TooLarge(
            f"a message has at most {limit} fields (grpc_message_fields_max), "
            "counting those of lists; send fewer at a time"
        )


@functools.cache
def _find_counted(kind: Descriptor) -> CountedFields:
    """Return the fields that hold messages with repeated fields, at any depth.

    The messages must not contain themselves.
    """
    fields = ((each.number, each.message_type) for each in kind.fields if each.message_type)
    return CountedFields(
        {number: _find_counted(inside) for number, inside in fields if _repeats(inside)}
    )


def _repeats(kind: Descriptor) -> bool:
    return any(
        each.is_repeated or (each.message_type and _repeats(each.message_type))
        for each in kind.fields
    )
