"""Points as comma-separated values (RFC 4180, but with LF as line end).

Columns are run, tag, step and wall_time, then those of the value.

Numbers that are not finite are spelled NaN, Infinity and -Infinity, as in our JSON. Structured
fields, such as a tensor's shape and elements, are JSON. Names are quoted where RFC 4180 requires it
and otherwise unchanged, so that programs read exactly what was logged. Spreadsheets evaluate a
field that begins with "=" as a formula, even when quoted; import such files as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tbservice.api.formats.csv_fields import format_numbers, quote, text
from tbservice.api.formats.values import VALUE_FORMATS
from tbservice.reading.full_scan import SeriesChunk
from tbservice.samples import Sample
from tbwire.points import DataClass


def encode_csv(chunks: Iterable[SeriesChunk], data_class: DataClass) -> Iterator[bytes]:
    """Yield a header line, then one line per point."""
    value_format = VALUE_FORMATS[data_class]
    yield f"run,tag,step,wall_time,{','.join(value_format.csv_columns)}\n".encode()
    for chunk in chunks:
        if len(chunk.sample.steps):
            names = f"{quote(chunk.series.run)},{quote(chunk.series.tag)}"
            yield _lines(names, chunk.sample, value_format.to_csv(chunk.sample))


def _lines(names: str, sample: Sample, values: pa.Array) -> bytes:
    """Return the lines of a sample, joined elementwise by Arrow.

    The data buffer of an Arrow string array (buffers: validity, offsets, data) is the text itself.
    """
    columns = [
        pa.array(sample.steps).cast(pa.large_string()),
        format_numbers(sample.wall_times),
        values,
    ]
    line_ends = pc.binary_join_element_wise(*columns, text(","))
    lines = pc.binary_join_element_wise(text(f"{names},"), line_ends, text("\n"), text(""))
    offsets = np.frombuffer(lines.buffers()[1], np.int64, len(lines) + 1, 8 * lines.offset)
    return bytes(lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
