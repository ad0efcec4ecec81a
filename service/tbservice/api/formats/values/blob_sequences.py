"""Blob sequences in each format: a column `keys`, for `/api/v1/blobs/{key}`.

CSV and Arrow have the logged content type, empty if none was logged, in a column of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from tbservice.api.formats import csv_fields
from tbservice.samples import BlobSequenceSample
from tbservice.types.identifiers import Json
from tbservice.types.series import Blob
from tbwire import read_pb2
from tbwire.points import set_columns

CSV_COLUMNS: Final = ("keys", "logged_content_type")
ARROW_COLUMNS: Final = (("keys", pa.list_(pa.string())), ("logged_content_type", pa.string()))


def to_json(sample: BlobSequenceSample) -> list[list[Json]]:
    """Return the values: lists of {key}, with `logged_content_type` if there is one."""
    rows = zip(sample.sequences, sample.logged_content_types, strict=True)
    return [[_blob_json(key, content_type) for key in keys] for keys, content_type in rows]


def to_csv(sample: BlobSequenceSample) -> pa.Array:
    """Return the fields of CSV_COLUMNS of each point, joined."""
    rows = zip(sample.sequences, sample.logged_content_types, strict=True)
    fields = (
        f"{csv_fields.quote(csv_fields.json_field(list(keys)))},{csv_fields.quote(content_type)}"
        for keys, content_type in rows
    )
    return pa.array(fields, pa.large_string())


def to_arrow(samples: Sequence[BlobSequenceSample]) -> list[pa.Array]:
    """Return the columns of ARROW_COLUMNS, with the points of all samples."""
    keys = [list(keys) for sample in samples for keys in sample.sequences]
    content_types = [text for sample in samples for text in sample.logged_content_types]
    return [pa.array(keys, pa.list_(pa.string())), pa.array(content_types, pa.string())]


def fill_part(part: read_pb2.Part, sample: BlobSequenceSample, blobs: Mapping[bytes, Blob]) -> None:
    """Set the points of a `Part`; `blobs` are all of the sample, by SHA-256."""
    message = part.blob_sequences
    set_columns(message, sample)
    rows = zip(sample.sequences, sample.digests, sample.logged_content_types, strict=True)
    for keys, digests, content_type in rows:
        stored = [
            _blob_message(key, blobs[digest]) for key, digest in zip(keys, digests, strict=True)
        ]
        message.sequences.add(blobs=stored, logged_content_type=content_type)


def _blob_json(key: str, logged_content_type: str) -> Json:
    return (
        {"key": key, "logged_content_type": logged_content_type}
        if logged_content_type
        else {"key": key}
    )


def _blob_message(key: str, blob: Blob) -> read_pb2.StoredBlob:
    return read_pb2.StoredBlob(
        key=key, sha256=bytes.fromhex(blob.sha256), size=blob.size, content_type=blob.content_type
    )
