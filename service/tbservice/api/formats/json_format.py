"""Points as JSON, `{run: {tag: {"steps": […], …}}}`, written series by series: none is looked back at."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, groupby
from typing import IO, Final

import orjson

from tbservice.reading.full_scan import Sample, SeriesChunk
from tbservice.types import Json, SamplingRule

COLUMNS: Final = ("steps", "wall_times", "values")

_SPOOLED_BYTES: Final = 1024 * 1024
_READ_BYTES: Final = 256 * 1024


def encode_json(
    chunks: Iterable[SeriesChunk], as_json: Callable[[Sample], Json]
) -> Iterator[bytes]:
    """One object, run by run. `as_json` gives a sample's COLUMNS, and what else is said of its series.

    A series that comes in several parts has its columns in temporary files meanwhile: each column is one piece of JSON.
    """
    opening = b"{"
    for run, of_run in groupby(chunks, lambda chunk: chunk.series.run):
        yield opening + orjson.dumps(run) + b":"
        separator = b"{"
        for _, of_series in groupby(of_run, lambda chunk: chunk.series.series_id):
            first = next(of_series)
            yield separator + orjson.dumps(first.series.tag) + b":"
            if first.is_last:
                yield _dumps(as_json(first.sample))
            else:
                yield from _spool(chain([first], of_series), as_json)  # noqa: B031 - what is left of it
            separator = b","
        yield b"}"
        opening = b","
    yield b"{}" if opening == b"{" else b"}"


def _spool(chunks: Iterable[SeriesChunk], as_json: Callable[[Sample], Json]) -> Iterator[bytes]:
    with ExitStack() as open_files:
        files: dict[str, IO[bytes]] = {
            name: open_files.enter_context(tempfile.SpooledTemporaryFile(_SPOOLED_BYTES))
            for name in COLUMNS
        }
        count = 0
        rest: Json = {}
        for chunk in chunks:
            fields = as_json(chunk.sample)
            if count and len(chunk.sample.steps):
                for file in files.values():
                    file.write(b",")
            for name, file in files.items():
                file.write(_dumps(fields.pop(name))[1:-1])
            count += len(chunk.sample.steps)
            rest = rest or fields
        for name, file in files.items():
            yield (b"{" if name == COLUMNS[0] else b",") + orjson.dumps(name) + b":["
            file.seek(0)
            while piece := file.read(_READ_BYTES):
                yield piece
            yield b"]"
        # Of a series without a sample, the total is known when all of it was read; of a sample, it is.
        total = count if rest["sampling"] == SamplingRule.ALL else rest["total"]
        yield b"," + _dumps(rest | {"kept": count, "total": total})[1:]


def _dumps(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
