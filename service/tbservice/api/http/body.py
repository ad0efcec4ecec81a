"""Reading a request's body within a size and a time."""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Final

from starlette.requests import ClientDisconnect, Request

from tbservice.errors import MalformedRequest, RequestTimeout, TooLarge, Unavailable

_SPOOLED_BYTES: Final = 1024 * 1024
_WRITTEN_BYTES: Final = 512 * 1024


async def read_body(request: Request, bytes_max: int, seconds_max: float) -> bytes:
    """The request's body. Raises TooLarge; RequestTimeout when it takes longer than `seconds_max` or breaks off."""
    body = bytearray()
    try:
        async for chunk in _receive_chunks(request, bytes_max, seconds_max):
            body += chunk
        return bytes(body)
    finally:
        body.clear()  # an error's traceback holds this frame, and garbage collection comes late


@asynccontextmanager
async def spool_body(
    request: Request, bytes_max: int, seconds_max: float
) -> AsyncIterator[tuple[IO[bytes], int]]:
    """The request's body as a file that stands at its start, and its size; on disk when large. Raises as above."""
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
        size = 0
        async for chunk in _coalesce(_receive_chunks(request, bytes_max, seconds_max)):
            size += len(chunk)
            await asyncio.to_thread(_write, file, chunk)
        file.seek(0)
        yield file, size


async def spool_body_parts(
    request: Request, part_bytes: int, bytes_max: int, seconds_max: float
) -> AsyncIterator[tuple[IO[bytes], int]]:
    """The request's body as files of `piece_bytes` each, the last one shorter, with their sizes. Raises as above.

    A file is gone when the next one is asked for.
    """
    received, rest = _coalesce(_receive_chunks(request, bytes_max, seconds_max)), b""
    while True:
        with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
            size = 0
            while size < part_bytes and (chunk := rest or await anext(received, b"")):
                taken, rest = chunk[: part_bytes - size], chunk[part_bytes - size :]
                await asyncio.to_thread(_write, file, taken)
                size += len(taken)
            if not size:
                return
            file.seek(0)
            yield file, size


async def _coalesce(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in larger pieces: each of them costs a turn of a thread."""
    joined = bytearray()
    async for chunk in chunks:
        joined += chunk
        if len(joined) >= _WRITTEN_BYTES:
            yield bytes(joined)
            joined.clear()
    if joined:
        yield bytes(joined)


def _write(file: IO[bytes], chunk: bytes) -> None:
    try:
        file.write(chunk)
    except OSError as error:  # the disk is full
        raise Unavailable(
            "there is no room to receive the body now; nothing was lost, try again"
        ) from error


async def _receive_chunks(
    request: Request, bytes_max: int, seconds_max: float
) -> AsyncIterator[bytes]:
    size = 0
    try:
        async with asyncio.timeout(seconds_max):
            async for chunk in request.stream():
                size += len(chunk)
                if size > bytes_max:
                    raise TooLarge(f"a request to this address may have at most {bytes_max} bytes")
                yield chunk
    except (TimeoutError, ClientDisconnect) as error:
        raise RequestTimeout(
            f"the request's body did not arrive within {seconds_max:g} seconds"
        ) from error


def decompress(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body without its gzip encoding; never grows over `bytes_max`. Raises MalformedRequest or TooLarge."""
    if encoding in {"", "identity"}:
        return body
    if encoding != "gzip":
        raise MalformedRequest(
            f"Content-Encoding {encoding[:50]!r} is not known here; send gzip or none"
        )
    decompressor = zlib.decompressobj(wbits=31)
    try:
        content = decompressor.decompress(body, bytes_max)
    except zlib.error as error:
        raise MalformedRequest("the body is not whole gzip data") from error
    if decompressor.unconsumed_tail:
        raise TooLarge(f"the body has over {bytes_max} bytes when decompressed")
    if not decompressor.eof or decompressor.unused_data:
        raise MalformedRequest("the body is not one whole gzip stream")
    return content
