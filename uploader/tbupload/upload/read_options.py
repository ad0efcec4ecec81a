"""How event files are read: the filter, the limits, and whether they may still grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tbupload.events.filters import SeriesFilter
from tbupload.http.wire_limits import WireLimits
from tbupload.limits import ReadLimits


@dataclass(frozen=True)
class ReadOptions:
    """How all files of one upload are read.

    `is_final` means that nothing is written to them any more: the end of a file is the end of its
    data, and damage needs no confirmation. `warn` is called with sentences for the user. `clock`
    is monotonic, in seconds.
    """

    series_filter: SeriesFilter
    limits: WireLimits
    is_final: bool
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def read_limits(self, chunk_bytes: int) -> ReadLimits:
        """Return the reader's limits: the server's, and a chunk's size in bytes of the file."""
        return ReadLimits(
            tensor_bytes_max=self.limits.tensor_bytes_max,
            blob_bytes_max=self.limits.blob_bytes_max,
            name_chars_max=self.limits.name_chars_max,
            metadata_bytes_max=self.limits.metadata_bytes_max,
            tensor_object_bytes_max=self.limits.tensor_object_bytes_max,
            tensor_rank_max=self.limits.tensor_rank_max,
            blob_sequence_length_max=self.limits.blob_sequence_length_max,
            logged_content_type_chars_max=self.limits.logged_content_type_chars_max,
            chunk_bytes=chunk_bytes,
        )
