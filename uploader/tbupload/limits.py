"""The limits the uploader keeps to when it reads event files; bytes unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 4 << 20
"""How much of an event file is read and decoded at a time; a longer record makes a chunk of its own."""

RECORD_BYTES_MAX: Final = 1 << 30
"""A longer record is passed over by its length, without being loaded."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of a tensor: as many as numpy can have."""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs of one step."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What the server takes (the wire's `Limits`), and what the reader itself keeps to."""

    tensor_bytes_max: int
    blob_bytes_max: int
    name_chars_max: int  # characters, not bytes
    metadata_bytes_max: int
    tensor_rank_max: int = TENSOR_RANK_MAX
    blob_sequence_length_max: int = BLOB_SEQUENCE_LENGTH_MAX
    record_bytes_max: int = RECORD_BYTES_MAX
    chunk_bytes: int = CHUNK_BYTES
