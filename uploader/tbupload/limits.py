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

EXPANDED_TENSOR_BYTES_MAX: Final = 16 << 20
"""Bytes of a tensor after decoding: string lengths, varints and repeated elements expanded.

`TensorProto` may be far smaller (tensorflow/core/framework/tensor.proto: repeated last element).
"""

LOADED_TENSORS_BYTES_MAX: Final = 12 << 20
"""Tensors loaded of a long record; further ones are read when they are sent as objects."""

LOADED_TENSOR_BYTES_MIN: Final = 1 << 20
"""A tensor of a long record up to this size is always loaded: there may be many."""

RECORD_TENSORS_BYTES_MAX: Final = 24 << 20
"""Tensors and small blobs loaded of one record: more than any request may contain."""

CHUNK_TENSORS_BYTES_MAX: Final = 32 << 20
"""Decoded tensors and small blobs after which a chunk ends, since few bytes may expand to many."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of a tensor: the limit of numpy 2 (`NPY_MAXDIMS`)."""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs per step."""

RESPONSE_BYTES_MAX: Final = 128 << 20
"""Response body that is read into memory (JSON), or one frame or event of a streamed response.

Responses of tbhub are far smaller.
"""

RESPONSE_SECONDS_MAX: Final = 900.0
"""Time from the first to the last byte of such a response body."""

LOST_POINTS_MAX: Final = 100_000
"""Points that one response may report as left out because their objects are lost."""

ERROR_BYTES_MAX: Final = 64 << 10
"""Bytes that are read of the body of an error response."""

ERROR_DETAIL_CHARS_MAX: Final = 2_000
"""Characters that are shown of a server's error message."""

RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""Upper bound on the delay that a server requests (Retry-After, RFC 9110, section 10.2.3)."""

LISTING_PAGES_MAX: Final = 100_000
"""Pages of a listing (of hundreds or thousands of items); more are treated as an endless loop."""

LISTING_BYTES_MAX: Final = 4 << 30
"""Bytes of all pages of a listing."""

PAGE_TOKEN_CHARS_MAX: Final = 100_000
"""Characters of a page token: it may contain the names of a run and a tag."""

WIRE_LIMIT_MAX: Final = 1 << 30
"""Upper bound (bytes, chars, points) of each limit that a server announces: it bounds memory."""


FORWARDED_MESSAGE_BYTES_MAX: Final = 64 << 20
"""Bytes of a gRPC message to be forwarded; the server has a limit of its own."""

HPARAMS_FILE_BYTES_MAX: Final = 64 << 20
"""Bytes of a file of hyperparameters (`--hparams`)."""


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
