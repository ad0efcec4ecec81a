"""Points as a Parquet file, row group by row group.

The metadata is in the footer (Apache Parquet format, "File Format"), so that a truncated file
cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow.parquet as pq

from tbservice.api.formats.tables import make_schema, record_batches
from tbservice.api.formats.write_sink import WriteSink
from tbservice.reading.full_scan import SeriesChunk
from tbwire.points import DataClass

_ENCODINGS: Final = {
    "step": "DELTA_BINARY_PACKED",
    "wall_time": "BYTE_STREAM_SPLIT",
    "value": "BYTE_STREAM_SPLIT",
}
"""A quarter fewer bytes than PLAIN, in less time. Both are in "Encodings" of the Parquet format."""

_ZSTD_LEVEL: Final = -1
"""A fast level of zstd: a third faster than level 1, for 3 % more bytes."""


def encode_parquet(
    chunks: Iterable[SeriesChunk], data_class: DataClass, sampling: str
) -> Iterator[bytes]:
    """Yield a Parquet file with the columns of `tables`, compressed."""
    schema = make_schema(data_class, sampling)
    sink = WriteSink()

    encodings = {name: encoding for name, encoding in _ENCODINGS.items() if name in schema.names}
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=[name for name in ("run", "tag", "dtype") if name in schema.names],
        column_encoding=encodings,
    )

    for batch in record_batches(chunks, schema, data_class):
        writer.write_batch(batch, row_group_size=batch.num_rows)
        yield sink.take_written()
    writer.close()
    yield sink.take_written()
