"""Points as JSON, `{run: {tag: {"steps": […], …}}}`, encoded series by series."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, groupby
from typing import IO, Any, Final

import numpy as np
import orjson

from tbservice.api.formats.json_encoding import summary_metadata
from tbservice.api.formats.values import VALUE_FORMATS
from tbservice.reading.full_scan import SeriesChunk
from tbservice.samples import Sample
from tbservice.types.identifiers import Json
from tbservice.types.sampling import SamplingRule
from tbservice.types.series import Series

COLUMNS: Final = ("steps", "wall_times", "values")

_SPOOLED_BYTES: Final = 1024 * 1024
_READ_BYTES: Final = 256 * 1024


def sample_values(sample: Sample) -> Any:
    """Return the values of a sample of any data class."""
    return VALUE_FORMATS[sample.data_class].to_json(sample)


def sample_to_json(sample: Sample, sampling: str) -> Json:
    """Return a sample as COLUMNS, with the numbers of points kept and in total, and the rule."""
    return {
        "steps": np.ascontiguousarray(sample.steps),
        "wall_times": np.ascontiguousarray(sample.wall_times),
        "values": sample_values(sample),
        "kept": len(sample.steps),
        "total": sample.total,
        "sampling": sampling,
    }


def encode_samples(samples: Iterable[tuple[Series, Sample]], sampling: str) -> bytes:
    """Return one JSON object with each sample (`sample_to_json`), by run and tag.

    Each sample is encoded by itself, so that other threads run in between: orjson holds Python's
    lock, 33 ms for 15 MB.
    """
    # Joined once: a copy of some megabytes takes as long as their encoding.
    parts: list[bytes] = []
    opening = b"{"
    for run, samples_of_run in groupby(samples, lambda pair: pair[0].run):
        parts += opening, orjson.dumps(run)
        separator = b":{"
        for series, sample in samples_of_run:
            encoded = _dumps(sample_to_json(sample, sampling))
            parts += separator, orjson.dumps(series.tag), b":", encoded
            separator = b","
        parts.append(b"}")
        opening = b","
    return b"".join([*parts, b"}"]) if parts else b"{}"


def _chunk_to_json(chunk: SeriesChunk, sampling: str, *, with_metadata: bool) -> Json:
    fields = sample_to_json(chunk.sample, sampling)
    return (
        fields | {"summary_metadata": summary_metadata(chunk.series)} if with_metadata else fields
    )


def encode_json(
    chunks: Iterable[SeriesChunk], sampling: str, *, with_metadata: bool = False
) -> Iterator[bytes]:
    """Yield one JSON object with the samples as `sample_to_json` returns them.

    With `with_metadata`, each also has the `summary_metadata` of its series.

    A column is contiguous in JSON, while each chunk of a series has a range of every column: if a
    series has several chunks, its columns are first written to temporary files.
    """
    opening = b"{"
    for run, run_chunks in groupby(chunks, lambda chunk: chunk.series.run):
        yield opening + orjson.dumps(run) + b":"
        separator = b"{"
        for _, series_chunks in groupby(run_chunks, lambda chunk: chunk.series.series_id):
            first = next(series_chunks)
            yield separator + orjson.dumps(first.series.tag) + b":"
            if first.is_last:
                yield _dumps(_chunk_to_json(first, sampling, with_metadata=with_metadata))
            else:
                parts = chain([first], series_chunks)  # noqa: B031 - used once
                yield from _spool(parts, sampling, with_metadata=with_metadata)
            separator = b","
        yield b"}"
        opening = b","

    yield b"{}" if opening == b"{" else b"}"


def _spool(chunks: Iterable[SeriesChunk], sampling: str, *, with_metadata: bool) -> Iterator[bytes]:
    with ExitStack() as open_files:
        files: dict[str, IO[bytes]] = {
            name: open_files.enter_context(tempfile.SpooledTemporaryFile(_SPOOLED_BYTES))
            for name in COLUMNS
        }

        count = 0
        other_fields: Json = {}
        for chunk in chunks:
            fields = _chunk_to_json(chunk, sampling, with_metadata=with_metadata)
            if count and len(chunk.sample.steps):
                for file in files.values():
                    file.write(b",")
            for name, file in files.items():
                file.write(_dumps(fields.pop(name))[1:-1])
            count += len(chunk.sample.steps)
            other_fields = other_fields or fields

        for name, file in files.items():
            yield (b"{" if name == COLUMNS[0] else b",") + orjson.dumps(name) + b":["
            file.seek(0)
            while content := file.read(_READ_BYTES):
                yield content
            yield b"]"

        # A full scan knows the total only at its end; a sample knows it from the start.
        is_full_scan = other_fields["sampling"] == SamplingRule.ALL
        total = count if is_full_scan else other_fields["total"]
        yield b"," + _dumps(other_fields | {"kept": count, "total": total})[1:]


def _dumps(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
