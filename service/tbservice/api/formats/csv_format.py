"""Points as comma-separated values (RFC 4180, but with LF as line end).

Columns are run, tag, step and wall_time, then those of the value.

Numbers that are not finite are spelled NaN, Infinity and -Infinity, as in our JSON. Structured
fields, such as a tensor's shape and elements, are JSON. Names are quoted where RFC 4180 requires it
and otherwise unchanged, so that programs read exactly what was logged. Spreadsheets evaluate a
field that begins with "=" as a formula, even when quoted; import such files as text.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tbservice.api.formats.csv_fields import format_numbers, quote, text
from tbservice.api.formats.series_metadata import METADATA_COLUMNS, series_metadata
from tbservice.api.formats.values import VALUE_FORMATS
from tbservice.reading.full_scan import SeriesChunk
from tbservice.samples import Sample, cut
from tbservice.types.series import Series
from tbwire.points import DataClass

_METADATA_CHARS_PER_PART: Final = 4 * 1024 * 1024
"""Characters of metadata in memory at once, which each line repeats."""


def encode_csv(
    chunks: Iterable[SeriesChunk], data_class: DataClass, *, with_metadata: bool = False
) -> Iterator[bytes]:
    """Yield a header line, then one line per point.

    With `with_metadata`, each line ends with METADATA_COLUMNS; the plugin's content is base64.
    """
    value_format = VALUE_FORMATS[data_class]
    metadata_columns = METADATA_COLUMNS if with_metadata else ()
    columns = (*value_format.CSV_COLUMNS, *metadata_columns)
    yield f"run,tag,step,wall_time,{','.join(columns)}\n".encode()
    for chunk in chunks:
        if len(chunk.sample.steps):
            names = f"{quote(chunk.series.run)},{quote(chunk.series.tag)}"
            metadata = _metadata_fields(chunk.series) if with_metadata else ""
            for sample in _cut(chunk.sample, len(metadata)):
                yield _lines(names, sample, value_format.to_csv(sample), metadata)


def _cut(sample: Sample, metadata_chars: int) -> Iterator[Sample]:
    """Yield the sample in parts whose lines have a bounded size with this much metadata each."""
    rows = max(1, _METADATA_CHARS_PER_PART // max(1, metadata_chars))
    for start in range(0, len(sample.steps), rows):
        yield cut(sample, slice(start, start + rows))


def _metadata_fields(series: Series) -> str:
    """Return what follows the values on each line of a series."""
    *texts, content = series_metadata(series)
    fields = (*texts, base64.b64encode(content).decode())
    return "".join(f",{quote(field)}" for field in fields)


def _lines(names: str, sample: Sample, values: pa.Array, metadata: str) -> bytes:
    """Return the lines of a sample, joined elementwise by Arrow.

    The data buffer of an Arrow string array (buffers: validity, offsets, data) is the text itself.
    """
    columns = [
        pa.array(sample.steps).cast(pa.large_string()),
        format_numbers(sample.wall_times),
        values,
    ]
    line_ends = pc.binary_join_element_wise(*columns, text(","))
    lines = pc.binary_join_element_wise(
        text(f"{names},"), line_ends, text(f"{metadata}\n"), text("")
    )
    offsets = np.frombuffer(lines.buffers()[1], np.int64, len(lines) + 1, 8 * lines.offset)
    return bytes(lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
