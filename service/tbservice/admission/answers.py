"""Sending answers: piece by piece, to clients that take them, within the caller's share of the process's memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl

from tbservice import limits
from tbservice.admission.admitted import AdmittedRequest
from tbservice.admission.refusals import refuse

ABORT_KEY: Final = "tbhub.abort"
"""Where the connection leaves, in the scope, the function that closes it at once, with what is unsent."""

OUTGOING_KEY: Final = "tbhub.outgoing"
"""Where the connection leaves, in the scope, what is on its way to the client: an `Outgoing`."""

COUNTED_KEY: Final = "tbhub.is_counted"
"""Where a stream leaves, in the scope, that its memory was taken from the caller's share before it began."""

_log = logging.getLogger(__name__)


class Outgoing:
    """What is on its way to one client."""

    def __init__(self, transport: asyncio.WriteTransport, flow: FlowControl) -> None:
        self._transport = transport
        self._flow = flow

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the system has not taken yet."""
        return self._transport.get_write_buffer_size()

    async def wait_until_sent(self) -> None:
        """Return when nothing is unsent, or the client has left."""
        await self._flow.drain()


class ResponseSender:
    """The answer to one request, as the application sends it.

    When it begins, the work is done, and the turn is given back: a slow reader holds memory, and nothing else. That is
    counted; where the caller's share of it is used up, the answer is a 429 instead.
    """

    def __init__(self, scope: Scope, send: Send, admitted: AdmittedRequest) -> None:
        self._scope = scope
        self._send = send
        self._outgoing: Outgoing | None = scope.get(OUTGOING_KEY)
        self._admitted = admitted
        self._start: Message | None = None
        self._has_ended = False
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Send the next message of the answer, waiting until the client has taken the ones before."""
        if self._has_ended:
            return
        if message["type"] == "http.response.start":
            self._admitted.turn.finish()
            self._start = (
                message  # sent with the first bytes, until which it can still become a 429
            )
            return
        size = len(message.get("body", b""))
        unread, caller = self._admitted.shares.unread_bytes, self._admitted.caller
        if self._start is None or self._scope.get(COUNTED_KEY):
            unread.acquire_unchecked(caller, size)
        elif not unread.try_acquire(caller, size):
            self._has_ended = True
            await self.send_refusal(refuse(self._scope, unread.over_share_error(caller)))
            return
        try:
            await self._send_body(message)
        finally:
            unread.release(caller, size)

    async def send_refusal(self, response: Response) -> None:
        """Send a refusal in the place of the answer, which must not have begun."""
        self.has_begun = True
        await response(self._scope, _nothing, self._send)

    async def _send_body(self, message: Message) -> None:
        body = memoryview(message.get("body", b""))
        more_body = message.get("more_body", False)
        if self._start is not None:
            self.has_begun = True
            start, self._start = self._start, None
            await self._send_in_time(start)
        ends = range(limits.RESPONSE_CHUNK_BYTES, len(body), limits.RESPONSE_CHUNK_BYTES)
        for end in ends:
            piece = bytes(body[end - limits.RESPONSE_CHUNK_BYTES : end])
            await self._send_in_time({**message, "body": piece, "more_body": True})
        last = bytes(body[ends[-1] if ends else 0 :])
        await self._send_in_time({**message, "body": last, "more_body": more_body})

    async def _send_in_time(self, message: Message) -> None:
        """Send a message, and wait until the end of an answer is taken: what is unsent is in memory, and counted."""
        if self._has_ended:
            return
        await self._in_time(lambda: self._send(message))
        if (
            self._outgoing is not None
            and not self._has_ended
            and not message.get("more_body", True)
        ):
            await self._in_time(self._outgoing.wait_until_sent)

    async def _in_time(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do what waits for the client; cut a client off that takes nothing for too long.

        What takes too long is begun again while the client takes something: it waits first, and then sends at once.
        """
        while not self._has_ended:
            unsent_bytes = self._unsent_bytes()
            try:
                async with asyncio.timeout(limits.RESPONSE_STALL_SECONDS_MAX):
                    await act()
            except TimeoutError:
                self._has_ended = self._unsent_bytes() >= unsent_bytes
            else:
                return
        _log.warning(
            "a client took nothing of its answer for %s seconds", limits.RESPONSE_STALL_SECONDS_MAX
        )
        abort = self._scope.get(ABORT_KEY)
        if abort is not None:
            abort()

    def _unsent_bytes(self) -> int:
        return 0 if self._outgoing is None else self._outgoing.unsent_bytes


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
