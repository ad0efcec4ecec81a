"""The result of a background upload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

COUNTS: Final = (
    *("scalars", "tensors", "blobs", "bytes", "runs", "series"),
    *("empty_values", "superseded", "files", "file_bytes"),
)
"""Numbers in the uploader's events that are fields of the result, by the same name."""


@dataclass(frozen=True)
class Result:
    """How a background upload ended, or what its latest look at the files found; and what it sent.

    Attributes:
        exit_code: 0 everything is committed; 1 failed, or something was skipped; 2 wrong usage;
            75 server unavailable or no room, retry later; negative: killed by that signal. None if
            the uploader could not be started, or was still sending when the wait was over.
        experiment_id: the experiment's ID, or None if it is unknown.
        url: the experiment's URL, or None if it is unknown.
        scalars: number of scalar points that were sent.
        tensors: number of tensor points that were sent.
        blobs: number of blobs (images, audio, graphs) that were sent.
        bytes: bytes of event files that were sent.
        runs: number of runs.
        series: number of time series.
        empty_values: number of values without content, which are not stored.
        superseded: points replaced by a later one of the same series, step and file.
        files: number of event files that are there, and that the filters select.
        file_bytes: their size.
        skipped: number of values that could not be uploaded, by reason.
        problems: one sentence per file or path that could not be uploaded completely.
        is_growing: files were still changing at the last look, or have grown after the end of the
            upload: their latest data may be missing.
        explanation: what went wrong and how to send the rest; empty if everything is committed.
    """

    exit_code: int | None
    experiment_id: str | None = None
    url: str | None = None
    scalars: int = 0
    tensors: int = 0
    blobs: int = 0
    bytes: int = 0
    runs: int = 0
    series: int = 0
    empty_values: int = 0
    superseded: int = 0
    files: int = 0
    file_bytes: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    is_growing: bool = False
    explanation: str = ""

    @property
    def is_complete(self) -> bool:
        """Return whether a final look at the files found nothing that is not committed."""
        return self.exit_code == 0 and not self.is_growing
