"""Points as an Arrow IPC stream, batch by batch.

The format lets a stream end anywhere between two messages: that it was cut off is seen by HTTP alone, whose last chunk
is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tbservice.api.formats.tables import make_schema, record_batches
from tbservice.api.formats.write_sink import WriteSink
from tbservice.reading.full_scan import SeriesChunk
from tbservice.types import DataClass


def encode_arrow(
    chunks: Iterable[SeriesChunk], data_class: DataClass, sampling: str
) -> Iterator[bytes]:
    """The columns of `tables`; the dictionaries of names are those of each batch."""
    schema = make_schema(data_class, sampling)
    sink = WriteSink()
    writer = pa.ipc.new_stream(sink, schema)
    for batch in record_batches(chunks, schema, data_class):
        writer.write_batch(batch)
        yield sink.take_written()
    writer.close()
    yield sink.take_written()
