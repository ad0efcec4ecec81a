"""Points as an Arrow IPC stream ("IPC Streaming Format" of Arrow's columnar format spec).

The end-of-stream marker is optional in this format, so that a stream that ends between two messages
is valid: only HTTP's missing last chunk shows that a response was truncated.
The module is small, as each format has one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tbservice.api.formats.write_sink import WriteSink


def write_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield an Arrow stream, batch by batch; each batch replaces the dictionaries of names."""
    sink = WriteSink()
    writer = pa.ipc.new_stream(sink, schema)
    for batch in batches:
        writer.write_batch(batch)
        yield sink.take_written()
    writer.close()
    yield sink.take_written()
