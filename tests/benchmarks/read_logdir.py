"""A process that reads a logdir's event files into columns and prints what that took, as JSON:
started by `reading`.

`python read_logdir.py LOGDIR` on one core; nothing is sent, nothing is kept.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tbupload.events.event_file import EventFileReader
from tbupload.events.filters import SeriesFilter
from tbupload.events.malloc_tuning import retain_freed_memory
from tbupload.events.multi_file_decode import read_together
from tbupload.limits import ReadLimits

LIMITS = ReadLimits(
    tensor_bytes_max=4 << 20,
    blob_bytes_max=1 << 30,
    name_chars_max=10_000,
    metadata_bytes_max=4 << 20,
)


def read(logdir: Path) -> int:
    """Points in all files below the logdir; fails when anything in them was skipped.

    As in an upload, a file is read until as much was read of it as it is long, and not once more.
    """
    points = 0
    paths = sorted(logdir.rglob("*tfevents*"))
    files = (
        EventFileReader(path, start=0, series_filter=SeriesFilter(), limits=LIMITS)
        for path in paths
    )
    for file in read_together(files, lambda file: file, lambda *_: True, final=True):
        size = file.path.stat().st_size
        while file.offset < size:
            chunk = file.read(final=True)
            assert chunk is not None, file.path
            assert not chunk.skipped, (file.path, chunk.skipped)
            points += sum(len(series.columns.steps) for series in chunk.series)
    return points


def main() -> None:
    """Reads once, on the first core this process may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    retain_freed_memory()  # as `tbupload` does
    began, cpu_began = time.perf_counter(), time.process_time()
    points = read(Path(sys.argv[1]))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps({"points": points, "seconds": seconds, "cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    main()
