"""Request bodies within a size and a time."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from starlette.requests import Request

from tbservice.api.http.body import decompress, read_body, spool_body, spool_body_parts
from tbservice.errors import MalformedRequest, RequestTimeout, TooLarge

pytestmark = pytest.mark.anyio


def request_of(*pieces, then_hangs=False, headers=()):
    waiting = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

    async def receive():
        if waiting:
            return waiting.pop(0)
        if then_hangs:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


async def test_body_comes_back_whole_in_memory_and_as_file():
    assert await read_body(request_of(b"ab", b"c"), 3, 5) == b"abc"
    async with spool_body(request_of(b"ab", b"c"), 3, 5) as (file, size):
        assert (file.read(), size) == (b"abc", 3)


@pytest.mark.parametrize("sizes", [[], [1], [10], [3, 3, 3, 3], [25, 5], [10, 10], [1] * 21])
async def test_body_is_spooled_in_equal_parts_and_a_rest(sizes):
    content = bytes(range(sum(sizes)))
    received = [content[sum(sizes[:index]) :][:size] for index, size in enumerate(sizes)]
    pieces = spool_body_parts(request_of(*received), 10, 100, 5)
    expected = [content[start : start + 10] for start in range(0, len(content), 10)]
    assert [(file.read(), size) async for file, size in pieces] == [
        (piece, len(piece)) for piece in expected
    ]


async def test_body_over_its_size_or_its_time_is_refused():
    with pytest.raises(TooLarge, match="2 bytes"):
        await read_body(request_of(b"ab", b"c"), 2, 5)
    with pytest.raises(RequestTimeout, match=r"0\.01 seconds"):
        await read_body(request_of(b"a", then_hangs=True), 9, 0.01)


async def test_body_announced_too_large_is_refused_before_it_is_read():
    request = request_of(then_hangs=True, headers=[(b"content-length", b"3")])
    with pytest.raises(TooLarge, match="2 bytes"):
        await read_body(request, 2, 5)


def test_gzip_never_grows_over_its_limit():
    body = gzip.compress(b"x" * 1000)
    assert decompress(body, "gzip", 1000) == b"x" * 1000
    assert decompress(b"x", "", 1) == b"x"
    with pytest.raises(TooLarge):
        decompress(body, "gzip", 999)
    for bad in (body[:-1], b"no gzip", b""):
        with pytest.raises(MalformedRequest):
            decompress(bad, "gzip", 1000)
    with pytest.raises(MalformedRequest, match="zstd"):
        decompress(body, "zstd", 1000)
