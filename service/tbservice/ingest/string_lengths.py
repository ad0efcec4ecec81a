"""Check the lengths of string tensors whose bytes are objects, before a point refers to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.ingest.batch import Segment, iter_referenced_tensors
from tbservice.store import blobs
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import (
    AppendGrant,
    Blob,
)
from tbwire import tensors


def check_string_lengths(
    database: Database, objects: ObjectStore, grant: AppendGrant, segments: Sequence[Segment]
) -> None:
    """Raise Invalid unless the lengths of each referenced string tensor add up to the bytes of its object.

    Runs before the batch's transaction, so that no connection waits for S3. What is not there, or is of another size,
    is passed over: the transaction refuses it. Raises TooLarge over `BATCH_TENSOR_TABLES_BYTES_MAX`.
    """
    wanted = {
        (reference, tensors.element_count(value.shape))
        for value, reference in iter_referenced_tensors(segments)
        if value.dtype == tensors.STRING
    }
    if not wanted:
        return
    if sum(4 * count for _, count in wanted) > limits.BATCH_TENSOR_TABLES_BYTES_MAX:
        limit = f"{limits.BATCH_TENSOR_TABLES_BYTES_MAX} bytes (batch_tensor_tables_bytes_max)"
        raise TooLarge(
            f"the tables of lengths of a batch's string tensors have over {limit}; send it in parts"
        )
    with database.transaction(grant.workspace_id) as db:
        known = blobs.find_all(
            db, grant.workspace_id, {reference.sha256 for reference, _ in wanted}
        )
    for reference, count in wanted:
        blob = known.get(reference.sha256)
        if blob is not None and blob.size == reference.size:
            _check_string_length(objects, blob, count)


def _check_string_length(objects: ObjectStore, blob: Blob, count: int) -> None:
    total, rest = 4 * count, b""
    for piece in objects.read(blob.object_key, 0, 4 * count):
        content = rest + piece
        end = len(content) // 4 * 4
        total += int(np.frombuffer(content[:end], "<u4").sum(dtype=np.int64))
        rest = content[end:]
    if total != blob.size:
        raise Invalid("a string tensor's lengths do not add up to its bytes")
