"""The limits a server sends to its clients."""

from __future__ import annotations

from dataclasses import dataclass

from tbupload.limits import BLOB_SEQUENCE_LENGTH_MAX, TENSOR_RANK_MAX, ReadLimits


@dataclass(frozen=True)
class WireLimits:
    """The wire's `Limits`: what the server accepts, in bytes unless the name has another unit."""

    batch_bytes_max: int
    blob_inline_bytes_max: int
    blob_bytes_max: int
    tensor_bytes_max: int
    name_chars_max: int
    metadata_bytes_max: int
    blob_sequence_length_max: int = BLOB_SEQUENCE_LENGTH_MAX  # blobs; older servers do not send it
    tensor_rank_max: int = TENSOR_RANK_MAX  # dimensions; the same
    packed_points_max: int = 0  # points; 0: packed blocks are not accepted
    tensor_object_bytes_max: int = 0  # of a tensor uploaded as a blob; 0: not accepted
    logged_content_type_chars_max: int = 0  # characters; 0: not accepted

    def read_limits(self, chunk_bytes: int) -> ReadLimits:
        """Return the limits of a reader of event files, with a chunk's size in bytes of a file."""
        return ReadLimits(
            tensor_bytes_max=self.tensor_bytes_max,
            blob_bytes_max=self.blob_bytes_max,
            name_chars_max=self.name_chars_max,
            metadata_bytes_max=self.metadata_bytes_max,
            tensor_object_bytes_max=self.tensor_object_bytes_max,
            tensor_rank_max=self.tensor_rank_max,
            blob_sequence_length_max=self.blob_sequence_length_max,
            logged_content_type_chars_max=self.logged_content_type_chars_max,
            chunk_bytes=chunk_bytes,
        )
