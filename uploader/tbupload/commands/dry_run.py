"""Reads a logdir as an upload would, and tells what it would send; speaks to no server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from tbupload.reading.filters import SeriesFilter
from tbupload.sending.batches import WireLimits
from tbupload.sending.cursors import CursorBook
from tbupload.sending.progress import Progress
from tbupload.sending.scan import scan_logdir
from tbupload.sending.source import Reading, Source
from tbupload.sending.summary import Summary

USUAL_LIMITS: Final = WireLimits(
    batch_bytes_max=16 << 20,
    blob_inline_bytes_max=256 << 10,
    blob_bytes_max=1 << 30,
    tensor_bytes_max=4 << 20,
    name_chars_max=10_000,
    metadata_bytes_max=4 << 20,
)
"""What a server usually takes: its own limits are known only to those who ask it."""


def survey(logdir: Path, series_filter: SeriesFilter, progress: Progress) -> Summary:
    """Reads everything that is in the logdir now; the summary counts what would be sent and what would be missing."""
    scan = scan_logdir(logdir, series_filter, USUAL_LIMITS.name_chars_max)
    reading = Reading(series_filter, USUAL_LIMITS, is_final=True, say=progress.warn)
    cursors = CursorBook(series_filter.digest(), [])
    counts: Counter[str] = Counter()
    tags: set[tuple[str, str]] = set()
    summary = Summary(problems=list(scan.problems.values()))
    if scan.problems:
        summary.skipped["path that could not be used"] = len(scan.problems)
    for found in scan.files:
        source = Source(found, reading, cursors)
        while (segment := source.take()) is not None:
            counts.update(segment.counts, bytes=segment.end - segment.start)
            tags.update((found.run, tag) for tag in segment.metadata)
            summary.skipped.update(segment.skipped)
        if note := source.cut_record():
            summary.notes.append(note)
        if source.trouble is not None:
            summary.skipped[source.trouble.kind] += 1
            summary.problems.append(source.trouble.explanation)
    summary.scalars, summary.tensors = counts["scalars"], counts["tensors"]
    summary.blobs, summary.bytes = counts["blobs"], counts["bytes"]
    summary.runs, summary.series = len({run for run, _ in tags}), len(tags)
    return summary
