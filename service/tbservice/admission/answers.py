"""Send responses in chunks, as fast as clients read them.

Bytes that a client has not read yet are in memory, and count against its caller's share.
"""

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

RESPONSE_CHUNK_BYTES: Final = 256 * limits.KIB
"""Bytes of a response written to the connection at once."""

ABORT_KEY: Final = "tbhub.abort"
"""Key of the ASGI scope for the function that closes the connection and drops unsent bytes."""

OUTGOING_KEY: Final = "tbhub.outgoing"
"""Key of the ASGI scope for the connection's `Outgoing`."""

COUNTED_KEY: Final = "tbhub.is_counted"
"""Key of the ASGI scope that a stream sets if it acquired its memory before the response started.

Its chunks are then counted without a check.
"""

_log = logging.getLogger(__name__)


class Outgoing:
    """The bytes that wait to be sent to one client."""

    def __init__(self, transport: asyncio.WriteTransport, flow: FlowControl) -> None:
        self._transport = transport
        self._flow = flow

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes the operating system has not accepted yet."""
        return self._transport.get_write_buffer_size()

    @property
    def is_waiting(self) -> bool:
        """Return whether a send, or `wait_until_sent`, would wait for the client."""
        return self._flow.write_paused

    async def wait_until_sent(self) -> None:
        """Return when nothing is unsent, or the client has disconnected."""
        await self._flow.drain()


class ResponseSender:
    """The response to one request, as the application sends it.

    The turn is released when the response starts: a slow reader then uses only memory. The memory
    is counted; if it exceeds the caller's share, the response becomes a 429.
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
        """Send the next ASGI message of the response, after the client has read the previous ones.

        Messages after the response was aborted or refused are ignored.
        """
        if self._has_ended:
            return
        if message["type"] == "http.response.start":
            # A slow reader has no turn: it would keep others from working.
            self._admitted.turn.finish()
            # Sent with the first bytes of the body: until then the response can become a 429.
            self._start = message
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
        """Send a refusal instead of the response, which must not have started."""
        self.has_begun = True
        await response(self._scope, _receive_disconnect, self._send)

    async def _send_body(self, message: Message) -> None:
        body = memoryview(message.get("body", b""))
        more_body = message.get("more_body", False)
        if self._start is not None:
            self.has_begun = True
            start, self._start = self._start, None
            await self._send_in_time(start)

        # In chunks, so that the stall timeout covers a bounded number of bytes.
        ends = range(RESPONSE_CHUNK_BYTES, len(body), RESPONSE_CHUNK_BYTES)
        for end in ends:
            chunk = bytes(body[end - RESPONSE_CHUNK_BYTES : end])
            await self._send_in_time({**message, "body": chunk, "more_body": True})
        last = bytes(body[ends[-1] if ends else 0 :])
        await self._send_in_time({**message, "body": last, "more_body": more_body})

    async def _send_in_time(self, message: Message) -> None:
        """Send a message; after the last one, wait until it was sent.

        Unsent bytes are in memory, so they stay counted until then.
        """
        if self._has_ended:
            return
        await self._in_time(lambda: self._send(message))
        if (
            self._outgoing is not None
            and not self._has_ended
            and not message.get("more_body", True)
        ):
            await self._in_time(self._outgoing.wait_until_sent)

    async def _in_time(self, send: Callable[[], Awaitable[None]]) -> None:
        """Await `send`, and abort the connection of a client that reads nothing for too long.

        While the client reads some bytes, a `send` that times out is called again. It may be: it
        waits first and then writes everything at once.
        """
        if self._outgoing is not None and not self._outgoing.is_waiting:
            await send()  # writes without waiting: a timeout would cost as much as the writing
            return
        while not self._has_ended:
            unsent_bytes = self._unsent_bytes()
            try:
                async with asyncio.timeout(limits.RESPONSE_STALL_SECONDS_MAX):
                    await send()
            except TimeoutError:
                # Fewer unsent bytes: the client is slow, and not gone.
                self._has_ended = self._unsent_bytes() >= unsent_bytes
            else:
                return

        _log.warning(
            "aborted a connection: the client read nothing of the response for %s seconds",
            limits.RESPONSE_STALL_SECONDS_MAX,
        )
        abort = self._scope.get(ABORT_KEY)
        if abort is not None:
            abort()

    def _unsent_bytes(self) -> int:
        return 0 if self._outgoing is None else self._outgoing.unsent_bytes


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}
