"""The backlog of an upload: when several readers read it, and when they end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final

from tbupload.console.texts import counted
from tbupload.logdir.entries import FileEntry
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.readers.choice import (
    BACKLOG_BYTES_MIN,
    LIVE_SECONDS,
    THREADS,
    choose_processes,
    idle_cores,
)
from tbupload.upload.readers.pool import ReaderPool, ReaderProcess, ReaderThread
from tbupload.upload.scheduler import Scheduler
from tbupload.upload.stream_cursors import StreamCursors

_FILES_MIN: Final = 2
"""Unread files of a remote log directory from which threads read them."""


class Backlog:
    """Starts readers when much is unread, and ends them when all of it was sent.

    Args:
        count: How many; None to choose: processes only for `BACKLOG_BYTES_MIN` that no job is
            writing, as cores are idle, and threads for remote files. 0 for none.
        is_remote: Whether the log directory is behind a URL.
        options: How files are read.
        cursors: The files that were uploaded before.
        scheduler: Sends the files.
        debug: Called with a sentence for `--verbose`.
    """

    def __init__(
        self,
        count: int | None,
        is_remote: bool,
        options: ReadOptions,
        cursors: StreamCursors,
        scheduler: Scheduler,
        debug: Callable[[str], None],
    ) -> None:
        self._count = count
        self._is_remote = is_remote
        self._options = options
        self._cursors = cursors
        self._scheduler = scheduler
        self._debug = debug
        self._is_started = False
        self._is_live = False
        self._files = self._bytes = 0

    def note(self, entries: Iterable[FileEntry]) -> None:
        """Count files that were enqueued; start readers if these are many bytes."""
        now = self._options.clock()
        for entry in entries:
            self._files += 1
            self._bytes += entry.size - entry.committed
            self._is_live = self._is_live or now - entry.changed_at < LIVE_SECONDS
        if self._is_started:
            if self._is_live and self._count is None and not self._is_remote:
                self._debug("a job is writing to the log directory: no more reader processes")
                self._end()
        elif self._files and (count := self._choose()) > 0:
            self._start(count)

    def note_all_sent(self) -> None:
        """End the readers: what comes now is little."""
        self._files = self._bytes = 0
        if self._is_started:
            self._end()

    def _choose(self) -> int:
        if self._count is not None:
            return self._count
        if self._is_remote:
            return THREADS if self._files >= _FILES_MIN else 0
        if self._bytes < BACKLOG_BYTES_MIN:
            return 0
        # Files that were committed before are found again, with the others, and not read.
        unread = self._bytes - self._cursors.committed_bytes
        return choose_processes(unread, idle_cores(), is_live=self._is_live)

    def _start(self, count: int) -> None:
        # Without a Python to run: https://docs.python.org/3/library/sys.html#sys.executable
        if not self._is_remote and (not sys.executable or getattr(sys, "frozen", False)):
            return
        kind = ReaderThread if self._is_remote else ReaderProcess
        try:
            readers = ReaderPool(
                count, kind, self._options, self._cursors.filters_digest, self._options.warn
            )
        except OSError as error:
            self._options.warn(f"cannot start reader processes, and reads without: {error}")
            self._count = 0
            return
        self._debug(f"reading with {counted(count, kind.noun)}")
        self._scheduler.read_ahead(readers)
        self._is_started = True

    def _end(self) -> None:
        self._scheduler.read_ahead(None)
        self._is_started = False
