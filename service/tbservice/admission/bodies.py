"""Receiving request bodies: within a size, a time and the caller's share of the process's memory.

While a body is on its way, its request holds no turn: a slow sender keeps nobody from working. What is received is
reserved beforehand by its announced size, since requests that each got a part of what they need would wait for one
another.
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

_BATCHES: Final = re.compile(r"/api/v1/experiments/[^/]+/batches")
_BLOBS: Final = re.compile(r"/api/v1/experiments/[^/]+/blobs/[^/]+")
_PAGES: Final = re.compile(r"/(experiment|compare)/.*")
_BLOB_MEMORY_BYTES: Final = 2 * limits.MIB
"""Bytes of a blob that are in memory while it arrives; the rest is in a file."""


class RequestBody:
    """The body of one request, as the application receives it.

    Routes that bound their bodies themselves, after the grant, get it as it arrives. All others, which the framework
    reads before the grant is made, get it in one piece, so that nothing is left of a body that breaks off.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        admitted: AdmittedRequest,
        check: Callable[[], Awaitable[None]],
    ) -> None:
        """`check` raises for a caller without any right to what the request names; it is asked before large bodies."""
        self._receive = receive
        self._admitted = admitted
        self._check = check
        self._path: str = scope["path"]
        self._announced = _announced_bytes(scope)
        self._reserved = 0
        # No other route reads a body of GET; streams do ask whether the client has left.
        may_be_read = scope["method"] not in {"GET", "HEAD"} or _is_read_by_route(self._path)
        self._is_open = may_be_read and (self._announced is None or self._announced > 0)
        self._first: Message | None = None

    async def receive(self) -> Message:
        """Return the next message of the request. Raises TooLarge, RequestTimeout, TooManyRequests; the errors of `check`."""
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
            message = await self._receive_whole()
        if not self._is_open:
            await self._admitted.turn.wait()
        return message

    async def wait_until_client_leaves(self) -> None:
        """Return when the client of a request without a body has closed its connection."""
        while (message := await self._receive())["type"] != "http.disconnect":
            self._first = message

    @property
    def is_absent(self) -> bool:
        """Whether the request has no body that is still to come."""
        return not self._is_open

    def close(self) -> None:
        """Give back what was reserved."""
        if self._reserved:
            self._admitted.shares.body_bytes.release(self._admitted.caller, self._reserved)
            self._reserved = 0

    async def _receive_paced(self) -> Message:
        message = await self._receive()
        if size := len(message.get("body", b"")):
            await self._admitted.shares.body_rate.pause(self._admitted.caller, size)
        return message

    async def _reserve(self, bytes_max: int) -> None:
        """Wait for room for the body; small ones need none, so that large ones of strangers keep no page shut."""
        if self._announced is not None and self._announced <= limits.SMALL_BODY_BYTES_MAX:
            return
        if not self._reserved:
            amount = bytes_max if self._announced is None else min(self._announced, bytes_max)
            await self._admitted.shares.body_bytes.wait(self._admitted.caller, amount)
            self._reserved = amount

    async def _check_in_turn(self) -> None:
        """Ask the database during a turn, as all work is done: a crowd that asks would keep threads from others."""
        await self._admitted.turn.wait()
        try:
            await self._check()
        finally:
            self._admitted.turn.release()

    async def _receive_whole(self) -> Message:
        """Return one message with the whole body."""
        if self._announced is None or self._announced > limits.SMALL_BODY_BYTES_MAX:
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
                        raise RequestTimeout("the request's body broke off")
                    body += message.get("body", b"")
                    if len(body) > limits.JSON_BODY_BYTES_MAX:
                        raise _too_large()
                    self._is_open = message.get("more_body", False)
        except TimeoutError as error:
            raise RequestTimeout(
                f"the body did not arrive within {limits.REQUEST_BODY_SECONDS_MAX} seconds"
            ) from error
        finally:
            content = b"" if self._is_open else bytes(body)
            body.clear()  # an error's traceback holds this frame, and garbage collection comes late
        return {"type": "http.request", "body": content, "more_body": False}


def _too_large() -> TooLarge:
    limit = f"{limits.JSON_BODY_BYTES_MAX} bytes (json_body_bytes_max)"
    return TooLarge(f"a request to this address may have at most {limit}")


def _is_read_by_route(path: str) -> bool:
    return any(pattern.fullmatch(path) for pattern in (_BATCHES, _BLOBS, _PAGES))


def _memory_bytes(path: str) -> int:
    """Return how many bytes of a body such a route holds in memory, at most."""
    if _BATCHES.fullmatch(path):
        return limits.BATCH_BYTES_MAX
    return _BLOB_MEMORY_BYTES if _BLOBS.fullmatch(path) else limits.JSON_BODY_BYTES_MAX


def _announced_bytes(scope: Scope) -> int | None:
    """Return the size of the body that the headers announce: 0 for none, None for a chunked one."""
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return None
    announced = headers.get("content-length", "0")
    return int(announced) if announced.isascii() and announced.isdigit() else None
