"""The limits the uploader keeps to when it reads event files, and what it takes from a server.

Bytes unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 4 << 20
"""How much of an event file is read and decoded at a time; a longer record makes a chunk of its own."""

RECORD_BYTES_MAX: Final = 1 << 30
"""A longer record is passed over by its length, without being loaded."""

STREAMED_RECORD_BYTES_MIN: Final = 8 << 20
"""A record longer than this is not loaded: its large blobs stay in the file until they are sent."""

SKELETON_FIELD_BYTES_MAX: Final = 16 << 10
"""In such a record, what is longer than this stays in the file if it is a blob."""

SKELETON_BYTES_MAX: Final = 16 << 20
"""What is loaded of one summary value in such a record: more than any tensor takes that could be sent."""

EXPANDED_TENSOR_BYTES_MAX: Final = 16 << 20
"""Bytes of a tensor that is made in memory: its lengths of strings, its numbers from varints, its repeated elements."""

LOADED_TENSORS_BYTES_MAX: Final = 12 << 20
"""Tensors loaded of a long record where the server takes objects; further ones stay in the file until they are sent."""

LOADED_TENSOR_BYTES_MIN: Final = 1 << 20
"""A tensor of a long record that is not longer is loaded in any case: there may be many."""

RECORD_TENSORS_BYTES_MAX: Final = 24 << 20
"""Tensors and small blobs kept of one record: more than any request may have."""

CHUNK_TENSORS_BYTES_MAX: Final = 32 << 20
"""Tensors and small blobs after which a chunk ends: more than its bytes hold, but few bytes may stand for many."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of a tensor: as many as numpy can have."""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs of one step."""

RESPONSE_BYTES_MAX: Final = 128 << 20
"""Bytes of a response that is held in memory whole: JSON, or a frame or event of a stream. Ours are far shorter."""

RESPONSE_SECONDS_MAX: Final = 900.0
"""Seconds that the body of such a response may take from its first byte to its last."""

LOST_POINTS_MAX: Final = 100_000
"""Points that one answer may name as left out because their objects are lost."""

ERROR_BYTES_MAX: Final = 64 << 10
"""Bytes of a refusal's body that are read."""

ERROR_DETAIL_CHARS_MAX: Final = 2_000
"""Characters of a server's explanation that are shown."""

RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""Seconds that a server is waited for before it is asked again, whatever it asks for (Retry-After)."""

LISTING_PAGES_MAX: Final = 100_000
"""Pages of a listing (items come in hundreds or thousands); a longer one is taken for one that never ends."""

LISTING_BYTES_MAX: Final = 4 << 30
"""Bytes of all pages of a listing."""

PAGE_TOKEN_CHARS_MAX: Final = 100_000
"""Characters of what names the next page: it may be made of a run's and a tag's name."""

WIRE_LIMIT_MAX: Final = 1 << 30
"""What any of a server's limits counts for at most (bytes, characters or items): it is the reader's memory."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What the server takes (the wire's `Limits`), and what the reader itself keeps to."""

    tensor_bytes_max: int
    blob_bytes_max: int
    name_chars_max: int  # characters, not bytes
    metadata_bytes_max: int
    tensor_rank_max: int = TENSOR_RANK_MAX
    tensor_object_bytes_max: int = (
        0  # of a tensor over `tensor_bytes_max`; 0 where the server takes none
    )
    blob_sequence_length_max: int = BLOB_SEQUENCE_LENGTH_MAX
    logged_content_type_chars_max: int = 0  # characters; 0 where the server keeps none
    record_bytes_max: int = RECORD_BYTES_MAX
    streamed_record_bytes_min: int = STREAMED_RECORD_BYTES_MIN
    skeleton_field_bytes_max: int = SKELETON_FIELD_BYTES_MAX
    chunk_bytes: int = CHUNK_BYTES
