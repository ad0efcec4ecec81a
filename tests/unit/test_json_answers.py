"""The coding of answers to TensorBoard's page."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from tbservice.tensorboard.native.json_answers import compressed_response

DECODERS = {
    None: bytes,
    "gzip": gzip.decompress,
    "zstd": lambda packed: pa.input_stream(pa.py_buffer(packed), compression="zstd").read(),
}


@pytest.mark.parametrize(
    "chunks", [[b"[", b"1," * 50_000, b"", b"2," * 50_000, b"3]"], [b"4" * 500]]
)
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip, deflate, br, zstd", "zstd"), ("gzip, deflate", "gzip"), ("zstd;q=0, br", None)],
)
def test_answer_is_compressed_in_coding_that_browser_prefers(accepted, coding, chunks):
    answer = ask(accepted, chunks)
    assert answer.headers.get("Content-Encoding") == coding
    assert DECODERS[coding](answer.body) == b"".join(chunks)
    assert answer.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("chunks", [[], [b"4" * 499], [b"4" * 400, b"4" * 99]])
def test_short_answer_stays_plain(chunks):
    answer = ask("gzip, zstd", chunks)
    assert (answer.body, answer.headers.get("Content-Encoding")) == (b"".join(chunks), None)


def ask(accepted, chunks):
    request = Request(EnvironBuilder(headers={"Accept-Encoding": accepted}).get_environ())
    return compressed_response(request, chunks)
