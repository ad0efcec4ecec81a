"""Points as comma-separated values (RFC 4180, but with LF as line end).

Columns are run, tag, step and wall_time, then those of the value.

Numbers that are not finite are spelled NaN, Infinity and -Infinity, as in our JSON. Structured
fields, such as a tensor's shape and elements, are JSON. Names are quoted where RFC 4180 requires it
and otherwise unchanged, so that programs read exactly what was logged. Spreadsheets evaluate a
field that begins with "=" as a formula, even when quoted; import such files as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tbservice.reading.full_scan import SeriesChunk
from tbservice.types import Json, Sample, ScalarSample
from tbwire.points import DataClass

_HEADER_LINES: Final = {
    DataClass.SCALAR: b"run,tag,step,wall_time,value\n",
    DataClass.TENSOR: b"run,tag,step,wall_time,dtype,shape,data,encoding,histogram\n",
    DataClass.BLOB_SEQUENCE: b"run,tag,step,wall_time,keys\n",
}

_NOT_FINITE: Final = {np.inf: "Infinity", -np.inf: "-Infinity"}


def encode_csv(
    chunks: Iterable[SeriesChunk], data_class: DataClass, as_json: Callable[[Sample], Json]
) -> Iterator[bytes]:
    """Yield a header line, then one line per point; `as_json` encodes tensors and blobs."""
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
    """Return the lines of a sample, joined elementwise by Arrow.

    The data buffer of an Arrow string array (buffers: validity, offsets, data) is the text itself.
    """
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
    """Return each number as the shortest decimal that parses to the same float64."""
    texts = pa.array(values).cast(pa.large_string())
    if bool(np.isfinite(values).all()):
        return texts
    for number, word in _NOT_FINITE.items():
        texts = pc.if_else(pa.array(values == number), _text(word), texts)
    return pc.if_else(pa.array(np.isnan(values)), _text("NaN"), texts)


def _fields(value: Any) -> str:
    """Return the fields of a tensor or blob sequence value, each quoted."""
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
    """Return the text as a CSV field; quoted also around spaces, which some readers strip."""
    if not any(character in text for character in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
