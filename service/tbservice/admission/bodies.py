"""Receive request bodies within limits of size, time and the caller's share of memory.

While a body arrives, its request holds no turn: a slow sender blocks no one's work. Its memory is
reserved in advance, by the announced size: requests that each acquired a part of what they need
would deadlock.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from tbservice import limits
from tbservice.admission.admitted import AdmittedRequest
from tbservice.errors import RequestTimeout, TooLarge

SMALL_BODY_BYTES_MAX: Final = 16 * limits.KIB
"""Bytes of a body that is read before the grant is checked, and reserves no memory.

At `CONNECTIONS_ITEMS_MAX`, all connections together hold 64 MiB of these.
"""

_BATCHES: Final = re.compile(r"/api/v1/experiments/[^/]+/batches")
_BLOBS: Final = re.compile(r"/api/v1/experiments/[^/]+/blobs/[^/]+")
_PAGES: Final = re.compile(r"/(experiment|compare)/.*")
_BLOB_MEMORY_BYTES: Final = 2 * limits.MIB
"""Bytes of a blob that are in memory while it arrives; the others are in a spooled file."""


class RequestBody:
    """The body of one request, as the application receives it.

    Routes that limit their bodies themselves, after the grant, receive it as it arrives. For all
    others FastAPI reads the body before the grant is made: they receive it in one message, so that
    an incomplete body leaves nothing behind.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        admitted: AdmittedRequest,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """Reserve nothing yet.

        Args:
            scope: The ASGI scope of the request.
            receive: The ASGI callable of the connection.
            admitted: The request, whose turn is released while the body arrives.
            check: Raises for a caller that may not read what the request names. It is called
                before a large body is received.
        """
        self._receive = receive
        self._admitted = admitted
        self._check = check
        self._path: str = scope["path"]
        self._announced = _announced_bytes(scope)
        self._reserved = 0

        # No other route reads the body of a GET: receiving there only waits for a disconnect.
        may_be_read = scope["method"] != "GET" or _is_read_by_route(self._path)
        self._is_open = may_be_read and (self._announced is None or self._announced > 0)
        self._first: Message | None = None

    async def receive(self) -> Message:
        """Return the next ASGI message of the request.

        Raises TooLarge, RequestTimeout, TooManyRequests and the errors of `check`.
        """
        if self._first is not None:
            message, self._first = self._first, None
            return message
        if not self._is_open:
            return await self._receive()

        self._admitted.turn.release()
        if _is_read_by_route(self._path):
            await self._reserve(_memory_bytes(self._path))
            message = await self._receive_paced()
            self._is_open = message["type"] == "http.request" and message.get("more_body", False)
        else:
            message = await self._receive_all()
        if not self._is_open:
            await self._admitted.turn.wait()
        return message

    async def wait_until_client_leaves(self) -> None:
        """Return when the client of a request without a body has disconnected."""
        while (message := await self._receive())["type"] != "http.disconnect":
            self._first = message

    @property
    def is_absent(self) -> bool:
        """Return whether no more of a body is expected."""
        return not self._is_open

    def close(self) -> None:
        """Release the reserved memory."""
        if self._reserved:
            self._admitted.shares.body_bytes.release(self._admitted.caller, self._reserved)
            self._reserved = 0

    async def _receive_paced(self) -> Message:
        message = await self._receive()
        if size := len(message.get("body", b"")):
            await self._admitted.shares.body_rate.pause(self._admitted.caller, size)
        return message

    async def _reserve(self, bytes_max: int) -> None:
        """Reserve memory for the body, waiting if needed.

        Small bodies need no reservation, so that large bodies of anonymous callers block no page.
        """
        if self._announced is not None and self._announced <= SMALL_BODY_BYTES_MAX:
            return
        if not self._reserved:
            amount = bytes_max if self._announced is None else min(self._announced, bytes_max)
            await self._admitted.shares.body_bytes.wait(self._admitted.caller, amount)
            self._reserved = amount

    async def _check_in_turn(self) -> None:
        """Call `check` during a turn: many such queries at once would occupy all threads."""
        await self._admitted.turn.wait()
        try:
            await self._check()
        finally:
            self._admitted.turn.release()

    async def _receive_all(self) -> Message:
        """Return one message with the complete body."""
        if self._announced is None or self._announced > SMALL_BODY_BYTES_MAX:
            await self._check_in_turn()
        if self._announced is not None and self._announced > limits.JSON_BODY_BYTES_MAX:
            raise _too_large()
        await self._reserve(limits.JSON_BODY_BYTES_MAX)

        body = bytearray()
        try:
            async with asyncio.timeout(limits.REQUEST_BODY_SECONDS_MAX):
                while self._is_open:
                    message = await self._receive_paced()
                    if message["type"] == "http.disconnect":
                        raise RequestTimeout(
                            "the client disconnected before the end of the request body"
                        )
                    body += message.get("body", b"")
                    if len(body) > limits.JSON_BODY_BYTES_MAX:
                        raise _too_large()
                    self._is_open = message.get("more_body", False)
        except TimeoutError as error:
            raise RequestTimeout(
                f"the request body did not arrive within {limits.REQUEST_BODY_SECONDS_MAX} seconds"
            ) from error
        finally:
            content = b"" if self._is_open else bytes(body)
            # An error's traceback references this frame until a late garbage collection.
            body.clear()
        return {"type": "http.request", "body": content, "more_body": False}


def _too_large() -> TooLarge:
    limit = f"{limits.JSON_BODY_BYTES_MAX} bytes (json_body_bytes_max)"
    return TooLarge(f"the request body is too large: at most {limit}")


def _is_read_by_route(path: str) -> bool:
    return any(pattern.fullmatch(path) for pattern in (_BATCHES, _BLOBS, _PAGES))


def _memory_bytes(path: str) -> int:
    """Return how many bytes of a body the route has in memory at most."""
    if _BATCHES.fullmatch(path):
        return limits.BATCH_BYTES_MAX
    return _BLOB_MEMORY_BYTES if _BLOBS.fullmatch(path) else limits.JSON_BODY_BYTES_MAX


def _announced_bytes(scope: Scope) -> int | None:
    """Return the body's size in bytes by its headers: 0 for no body, None if it is unknown.

    RFC 9112, 6.3: `Transfer-Encoding` overrides `Content-Length`.
    """
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return None
    announced = headers.get("content-length", "0")
    return int(announced) if announced.isascii() and announced.isdigit() else None
