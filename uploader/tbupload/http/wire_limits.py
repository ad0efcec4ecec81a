"""The limits a server tells its clients, as the uploader keeps to them."""

from __future__ import annotations

from dataclasses import dataclass

from tbupload.limits import BLOB_SEQUENCE_LENGTH_MAX, TENSOR_RANK_MAX


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What the server takes, as it says in its answers: the wire's `Limits`. Bytes unless the name says otherwise."""

    batch_bytes_max: int
    blob_inline_bytes_max: int
    blob_bytes_max: int
    tensor_bytes_max: int
    name_chars_max: int
    metadata_bytes_max: int
    blob_sequence_length_max: int = BLOB_SEQUENCE_LENGTH_MAX  # blobs; older servers do not say it
    tensor_rank_max: int = TENSOR_RANK_MAX  # dimensions; the same
    packed_points_max: int = 0  # points; 0 where packed blocks are not taken
    tensor_object_bytes_max: int = 0  # of a tensor that is put as a blob is; 0 where none is taken
    logged_content_type_chars_max: int = 0  # characters; 0 where none are kept
