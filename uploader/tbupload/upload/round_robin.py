"""The order in which an upload sends the files of a run: a segment of each in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Optional

from tbupload.logdir.scan import FoundFile
from tbupload.upload.file_upload import FileUpload, read_together
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.segments import EncodedSegment
from tbupload.upload.stream_cursors import StreamCursors

Segments = Iterator[tuple[FileUpload, Optional[EncodedSegment]]]
"""Segments of files, and each file with None at its end."""


def read_runs(files: Iterable[FoundFile], options: ReadOptions) -> Iterator[tuple[str, Segments]]:
    """Yield each run with the segments of its files, to be read before the next run.

    `files` are in the order of their runs. The segments are those that an upload to a new
    experiment sends, in its order.
    """
    cursors = StreamCursors(options.series_filter.digest(), [])
    uploads = (FileUpload(file, options, cursors) for file in files)
    together = read_together(uploads, is_final=options.is_final)
    for run, run_uploads in groupby(together, lambda upload: upload.run):
        yield run, round_robin(run_uploads)


def round_robin(uploads: Iterable[FileUpload]) -> Segments:
    """Yield the segments of one run's files in that order.

    The order decides which plugin owns a tag, and which of two points of one step and wall time is
    stored.
    """
    waiting: deque[FileUpload] = deque()
    for upload in uploads:
        yield from _take_turn(upload, waiting)
    while waiting:
        yield from _take_turn(waiting.popleft(), waiting)


def _take_turn(upload: FileUpload, waiting: deque[FileUpload]) -> Segments:
    while (segment := upload.next_segment()) is not None:
        yield upload, segment
        if upload.unread_bytes():
            waiting.append(upload)
            return
    yield upload, None
