"""Points and tables as an Arrow IPC stream or a Parquet file, made batch by batch.

The end-of-stream marker is optional in Arrow's streaming format ("IPC Streaming Format" of its
columnar format spec), so that a stream that ends between two messages is valid: only HTTP's missing
last chunk shows that a response was truncated. The metadata of Parquet is in the footer (Apache
Parquet format, "File Format"), so that a truncated file cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_ZSTD_LEVEL: Final = 1
"""A tenth more bytes than with DELTA_BINARY_PACKED and BYTE_STREAM_SPLIT, as numbers are PLAIN:
fastparquet cannot read the one, and reads wrong numbers from the other. Level 3 takes longer for
more bytes, snappy and LZ4 take twice the bytes.
"""


class _WriteSink:
    """A write-only file in memory; `take_written` returns and clears its content."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Append the bytes of a buffer."""
        self._written.append(bytes(data))
        return len(data)

    def take_written(self) -> bytes:
        """Return the bytes written since the previous call."""
        content = b"".join(self._written)
        self._written.clear()
        return content

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def close(self) -> None:
        """Do nothing: there is no underlying file."""


def write_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield an Arrow stream, batch by batch; each batch replaces the dictionaries of names."""
    sink = _WriteSink()
    writer = pa.ipc.new_stream(sink, schema)
    for batch in batches:
        writer.write_batch(batch)
        yield sink.take_written()
    writer.close()
    yield sink.take_written()


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield a Parquet file with a row group per batch.

    Columns of the type dictionary are dictionaries in the file, too. Codecs, encodings and types
    are those that DuckDB, pandas, polars and fastparquet read.
    """
    sink = _WriteSink()
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=[field.name for field in schema if pa.types.is_dictionary(field.type)],
    )

    for batch in batches:
        writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
        yield sink.take_written()
    writer.close()
    yield sink.take_written()
