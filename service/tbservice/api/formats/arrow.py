"""Points as an Arrow IPC stream, batch by batch.

The format lets a stream end anywhere between two messages: that it was cut off is seen by HTTP alone, whose last chunk
is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tbservice.api.formats.tables import record_batches, schema_of
from tbservice.api.formats.write_sink import Drain
from tbservice.reading.full_scan import Part
from tbservice.types import DataClass


def arrow_stream(parts: Iterable[Part], data_class: DataClass, sampling: str) -> Iterator[bytes]:
    """The columns of `tables`; the dictionaries of names are those of each batch."""
    schema = schema_of(data_class, sampling)
    drain = Drain()
    writer = pa.ipc.new_stream(drain, schema)
    for batch in record_batches(parts, schema, data_class):
        writer.write_batch(batch)
        yield drain.take()
    writer.close()
    yield drain.take()
