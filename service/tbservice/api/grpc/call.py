"""One call that was admitted: what it says, and how its method gets its work done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from google.protobuf.message import DecodeError, Message
from starlette.concurrency import run_in_threadpool

from tbservice import limits
from tbservice.admission.admitted import AdmittedRequest
from tbservice.api.grpc.message_guard import check_count
from tbservice.api.grpc.metadata import Metadata
from tbservice.errors import MalformedRequest

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Request = TypeVar("_Request", bound=Message)


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
