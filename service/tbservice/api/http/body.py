"""Reading of request bodies within limits of size and time."""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import IO, Final

from starlette.requests import ClientDisconnect, Request

from tbservice.admission.bodies import SMALL_BODY_BYTES_MAX
from tbservice.errors import MalformedRequest, RequestTimeout, TooLarge, Unavailable

_SPOOLED_BYTES: Final = 1024 * 1024
_WRITTEN_BYTES: Final = 512 * 1024


def is_small_body(request: Request) -> bool:
    """Return whether the request announces a body that may be read before its grant is checked."""
    announced = announced_bytes(request)
    return announced is not None and announced <= SMALL_BODY_BYTES_MAX


async def read_body(request: Request, bytes_max: int, seconds_max: float) -> bytes:
    """Return the request's body.

    Raises TooLarge over `bytes_max`; RequestTimeout after `seconds_max`, or when the client
    disconnects.
    """
    body = bytearray()
    try:
        async for chunk in _receive_chunks(request, bytes_max, seconds_max):
            body += chunk
        return bytes(body)
    finally:
        # An exception's traceback keeps this frame, and so the body, until garbage collection.
        body.clear()


@asynccontextmanager
async def spool_body(
    request: Request, bytes_max: int, seconds_max: float
) -> AsyncIterator[tuple[IO[bytes], int]]:
    """Yield the request's body as a file at offset 0, and its size; on disk if it is large.

    Raises as `read_body`.
    """
    with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
        size = 0
        async for chunk in _coalesce(_receive_chunks(request, bytes_max, seconds_max)):
            size += len(chunk)
            await asyncio.to_thread(_write, file, chunk)
        _rewind(file)
        yield file, size


async def spool_body_parts(
    request: Request, part_bytes: int, bytes_max: int, seconds_max: float
) -> AsyncIterator[tuple[IO[bytes], int]]:
    """Yield the request's body as files of `part_bytes` each, with their sizes.

    The last one is shorter. A file is closed when the next one is requested. Raises as `read_body`.
    """
    received, rest = _coalesce(_receive_chunks(request, bytes_max, seconds_max)), b""
    while True:
        with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as file:
            size = 0
            while size < part_bytes and (chunk := rest or await anext(received, b"")):
                head, rest = chunk[: part_bytes - size], chunk[part_bytes - size :]
                await asyncio.to_thread(_write, file, head)
                size += len(head)

            if not size:
                return
            _rewind(file)
            yield file, size


async def _coalesce(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in larger chunks: each write costs a switch to a worker thread."""
    joined = bytearray()
    async for chunk in chunks:
        joined += chunk
        if len(joined) >= _WRITTEN_BYTES:
            yield bytes(joined)
            joined.clear()
    if joined:
        yield bytes(joined)


def _write(file: IO[bytes], chunk: bytes) -> None:
    with _translate_full_disk():
        file.write(chunk)


def _rewind(file: IO[bytes]) -> None:
    with _translate_full_disk():
        file.seek(0)  # writes the last bytes, which were in a buffer


@contextmanager
def _translate_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            "the server's disk for temporary files is full: the operator of the server has to "
            "make room there; nothing was stored, try again"
        ) from error


async def _receive_chunks(
    request: Request, bytes_max: int, seconds_max: float
) -> AsyncIterator[bytes]:
    too_large = TooLarge(f"the body exceeds this route's limit of {bytes_max} bytes")
    if (announced_bytes(request) or 0) > bytes_max:
        raise too_large  # before any of it is received
    size = 0
    try:
        async with asyncio.timeout(seconds_max):
            async for chunk in request.stream():
                size += len(chunk)
                if size > bytes_max:
                    raise too_large
                yield chunk
    except (TimeoutError, ClientDisconnect) as error:
        raise RequestTimeout(
            f"the request's body did not arrive within {seconds_max:g} seconds"
        ) from error


def announced_bytes(request: Request) -> int | None:
    """Return the request's Content-Length in bytes; None without a valid one."""
    announced = request.headers.get("content-length", "")
    return int(announced) if announced.isascii() and announced.isdigit() else None


def decompress(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return the body without its Content-Encoding (RFC 9110, section 8.4), gzip or none.

    Raises TooLarge over `bytes_max` decompressed bytes, MalformedRequest for other encodings and
    invalid gzip data.
    """
    if encoding in {"", "identity"}:
        return body
    if encoding != "gzip":
        raise MalformedRequest(
            f"Content-Encoding {encoding[:50]!r} is not supported; send gzip or none"
        )

    decompressor = zlib.decompressobj(wbits=31)  # 16 + 15: gzip header, largest window
    try:
        content = decompressor.decompress(body, bytes_max)
    except zlib.error as error:
        raise MalformedRequest("the body is not valid gzip data") from error
    if decompressor.unconsumed_tail:
        raise TooLarge(f"the decompressed body exceeds the limit of {bytes_max} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise MalformedRequest("the body is not a single complete gzip stream")
    return content
