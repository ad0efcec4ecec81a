"""Points as comma-separated values (RFC 4180, lines that end with a line feed): run, tag, step, wall_time, then values.

Numbers that are not finite are spelled as in JSON: NaN, Infinity, -Infinity. What has a structure, as a tensor's shape
and elements, is JSON in its field. Names stand as they are, quoted where they must be: a program that reads them gets
just what was logged. A spreadsheet takes a field that begins with "=" for a formula, quoted or not; import such a file
as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tbservice.reading.full_scan import Sample, SeriesChunk
from tbservice.types import DataClass, Json, ScalarSample

_HEADER_LINES: Final = {
    DataClass.SCALAR: b"run,tag,step,wall_time,value\n",
    DataClass.TENSOR: b"run,tag,step,wall_time,dtype,shape,data,encoding,histogram\n",
    DataClass.BLOB_SEQUENCE: b"run,tag,step,wall_time,keys\n",
}

_NOT_FINITE: Final = {np.inf: "Infinity", -np.inf: "-Infinity"}


def encode_csv(
    chunks: Iterable[SeriesChunk], data_class: DataClass, as_json: Callable[[Sample], Json]
) -> Iterator[bytes]:
    """A head, then a line a point; `as_json` gives the values of what is no scalar."""
    yield _HEADER_LINES[data_class]
    for chunk in chunks:
        if not len(chunk.sample.steps):
            continue
        names = f"{_quote(chunk.series.run)},{_quote(chunk.series.tag)}"
        if isinstance(chunk.sample, ScalarSample):
            yield _lines(names, chunk.sample, _format_numbers(chunk.sample.values))
        else:
            yield _lines(
                names,
                chunk.sample,
                pa.array(map(_fields, as_json(chunk.sample)["values"]), pa.large_string()),
            )


def _lines(names: str, sample: Sample, values: pa.Array) -> bytes:
    """All lines at once: joined elementwise, their texts stand one after the other in one buffer."""
    columns = [
        pa.array(sample.steps).cast(pa.large_string()),
        _format_numbers(sample.wall_times),
        values,
    ]
    line_ends = pc.binary_join_element_wise(*columns, _text(","))
    lines = pc.binary_join_element_wise(_text(f"{names},"), line_ends, _text("\n"), _text(""))
    offsets = np.frombuffer(lines.buffers()[1], np.int64, len(lines) + 1, 8 * lines.offset)
    return bytes(lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _format_numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Each number as the shortest text that comes back as the same one."""
    texts = pa.array(values).cast(pa.large_string())
    if bool(np.isfinite(values).all()):
        return texts
    for number, word in _NOT_FINITE.items():
        texts = pc.if_else(pa.array(values == number), _text(word), texts)
    return pc.if_else(pa.array(np.isnan(values)), _text("NaN"), texts)


def _fields(value: Any) -> str:
    """A tensor's or a blob sequence's fields, each quoted."""
    if isinstance(value, list):
        return _quote(_json([blob["key"] for blob in value]))
    histogram = _json(value["histogram"]) if "histogram" in value else ""
    fields = (
        value["dtype"],
        _json(value["shape"]),
        _json(value["data"]),
        value.get("encoding", ""),
        histogram,
    )
    return ",".join(map(_quote, fields))


def _json(content: object) -> str:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _quote(text: str) -> str:
    """A field that is read back as this text."""
    if not any(character in text for character in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
