"""Points as a Parquet file, row group by row group.

The metadata is in the footer (Apache Parquet format, "File Format"), so that a truncated file
cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from tbservice.api.formats.write_sink import WriteSink

_ZSTD_LEVEL: Final = 1
"""A tenth more bytes than with DELTA_BINARY_PACKED and BYTE_STREAM_SPLIT, as numbers are PLAIN:
fastparquet cannot read the one, and reads wrong numbers from the other. Level 3 takes longer for
more bytes, snappy and LZ4 take twice the bytes.
"""


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield a Parquet file with a row group per batch.

    Columns of the type dictionary are dictionaries in the file, too. Codecs, encodings and types
    are those that DuckDB, pandas, polars and fastparquet read.
    """
    sink = WriteSink()
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
