"""Check the lengths of string tensors whose bytes are objects, before a point refers to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tbservice import limits
from tbservice.db.database import Database
from tbservice.errors import Invalid, TooLarge
from tbservice.ingest.batch import Segment, iter_referenced_tensors
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs
from tbservice.types.grants import AppendGrant
from tbservice.types.series import Blob
from tbwire import tensors

BATCH_TENSOR_TABLES_BYTES_MAX: Final = 64 * limits.MIB
"""Bytes of length tables read for one WriteBatch, of all its string tensors that are in S3."""


# A packed string tensor begins with the length of each string as uint32, little-endian, followed
# by the strings: see `tbwire/tensors.py`.
_BYTES_PER_LENGTH: Final = 4


def check_string_lengths(
    database: Database, objects: ObjectStore, grant: AppendGrant, segments: Sequence[Segment]
) -> None:
    """Check that the lengths of each referenced string tensor add up to the size of its object.

    Runs before the transaction of the batch, so that no connection waits for S3. Objects that are
    missing or have another size are skipped: the transaction refuses these. Raises Invalid for
    wrong lengths, and TooLarge above `BATCH_TENSOR_TABLES_BYTES_MAX`.
    """
    references = {
        (reference, tensors.element_count(value.shape))
        for value, reference in iter_referenced_tensors(segments)
        if value.dtype == tensors.STRING
    }
    if not references:
        return

    tables_bytes = sum(_BYTES_PER_LENGTH * count for _, count in references)
    if tables_bytes > BATCH_TENSOR_TABLES_BYTES_MAX:
        limit = f"{BATCH_TENSOR_TABLES_BYTES_MAX} bytes (batch_tensor_tables_bytes_max)"
        raise TooLarge(
            f"the tables of lengths of a batch's string tensors exceed {limit}; send it in parts"
        )

    digests = {reference.sha256 for reference, _ in references}
    with database.transaction(grant) as db:
        known = blobs.find_all(db, grant.workspace_id, digests)
    for reference, count in references:
        blob = known.get(reference.sha256)
        if blob is not None and blob.size == reference.size:
            _check_string_length(objects, blob, count)


def _check_string_length(objects: ObjectStore, blob: Blob, count: int) -> None:
    """Check the object of a tensor with `count` strings, of which only the table is read.

    Raises Invalid unless the table and the strings fill the object.
    """
    table_bytes = _BYTES_PER_LENGTH * count
    total, remainder = table_bytes, b""
    for chunk in objects.read(blob.object_key, 0, table_bytes):
        content = remainder + chunk
        end = len(content) // _BYTES_PER_LENGTH * _BYTES_PER_LENGTH
        # `int64`: the sum of many uint32 exceeds 32 bits.
        total += int(np.frombuffer(content[:end], "<u4").sum(dtype=np.int64))
        remainder = content[end:]
    if total != blob.size:
        raise Invalid("a string tensor's lengths do not add up to its bytes")
