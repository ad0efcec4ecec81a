"""Limits for reading event files, and for what is accepted from a server.

The unit is bytes unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 4 << 20
"""Size of the chunks in which event files are read; a longer record is a separate chunk."""

RECORD_BYTES_MAX: Final = 1 << 30
"""Longest record that is read; a longer one is skipped by its length, without loading it."""

STREAMED_RECORD_BYTES_MIN: Final = 8 << 20
"""From this length, a record is not loaded: its large blobs are read when they are sent."""

SKELETON_FIELD_BYTES_MAX: Final = 16 << 10
"""Longest blob field that is loaded with such a record."""

SKELETON_BYTES_MAX: Final = 16 << 20
"""Bytes loaded of one summary value of such a record: more than any accepted tensor needs."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of a tensor: the limit of numpy 2 (`NPY_MAXDIMS`)."""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs per step."""

RESPONSE_BYTES_MAX: Final = 128 << 20
"""Response body that is read into memory (JSON), or one frame or event of a streamed response.

Responses of tbhub are far smaller.
"""

ERROR_DETAIL_CHARS_MAX: Final = 2_000
"""Characters that are shown of a server's error message."""

LISTING_PAGES_MAX: Final = 100_000
"""Pages of a listing (of hundreds or thousands of items); more are treated as an endless loop."""

LISTING_BYTES_MAX: Final = 4 << 30
"""Bytes of all pages of a listing."""

WIRE_LIMIT_MAX: Final = 1 << 30
"""Upper bound (bytes, chars, points) of each limit that a server announces: it bounds memory."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits of the server (`Limits` of the wire protocol) and of the reader itself."""

    tensor_bytes_max: int
    blob_bytes_max: int
    name_chars_max: int  # characters, not bytes
    metadata_bytes_max: int
    tensor_rank_max: int = TENSOR_RANK_MAX
    tensor_object_bytes_max: int = 0  # a tensor sent as an object; 0: server accepts none
    blob_sequence_length_max: int = BLOB_SEQUENCE_LENGTH_MAX
    logged_content_type_chars_max: int = 0  # 0: the server stores none
    record_bytes_max: int = RECORD_BYTES_MAX
    streamed_record_bytes_min: int = STREAMED_RECORD_BYTES_MIN
    skeleton_field_bytes_max: int = SKELETON_FIELD_BYTES_MAX
    chunk_bytes: int = CHUNK_BYTES
