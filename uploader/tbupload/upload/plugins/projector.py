"""The upload of projector configs with their files, sent again whenever one of them changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tbupload.errors import Conflict, ReadError, Refused
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import SeriesPoints
from tbupload.http.client import Client
from tbupload.http.response_schema import unreadable_answer
from tbupload.http.wire_limits import WireLimits
from tbupload.logdir.entries import Folder
from tbupload.upload.file_errors import run_deleted_text
from tbupload.upload.plugins.projector_stream import ProjectorStream, state_checksum
from tbupload.upload.scheduler import RUN_DELETED, SEGMENT_FAULT_STATUSES, WriteOutcome
from tbupload.upload.segments import EncodedSegment
from tbupload.upload.stream_cursors import StreamCursors

CHECK_SECONDS: Final = 1.0
"""Shortest time between checks of the files."""

_SEND_ATTEMPTS_MAX: Final = 5
"""Attempts to send a config while other uploaders send other states of it."""

OnSent = Callable[[Folder, EncodedSegment, WriteOutcome], None]
"""Called with each committed segment, the folder of its run, and the server's answer."""


class ProjectorUpload:
    """Sends the projector configs of one log directory to one experiment.

    A config is a stream, with a new generation for each state of its files that differs from that
    of the newest generation.

    Args:
        client: The server.
        experiment_id: The experiment.
        logdir: The log directory; files outside of it are not sent.
        choice: The series filter, the server's limits, and the upload cursors.
        callbacks: Functions to call with committed segments, and with problems.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: str,
        logdir: Path,
        choice: tuple[SeriesFilter, WireLimits, StreamCursors],
        callbacks: tuple[OnSent, Callable[[str], None]],
    ) -> None:
        self.problems: dict[Path, list[str]] = {}
        self._client = client
        self._experiment_id = experiment_id
        self._logdir = logdir
        self._filter, self._limits, self._cursors = choice
        self._on_sent, self._report_problem = callbacks
        self._sent: dict[Path, bytes] = {}
        self._next_check_at = 0.0

    def poll(self, folders: Iterable[Folder], *, is_last: bool = False) -> None:
        """Check the configs in these folders if it is time to, and send those that have changed.

        With `is_last` it is always time. Raises ServerError.
        """
        if time.monotonic() < self._next_check_at and not is_last:
            return
        self._next_check_at = time.monotonic() + CHECK_SECONDS

        for folder in list(folders):
            stream = ProjectorStream(folder, self._logdir, self._filter, self._limits)
            path = stream.path
            try:
                if folder.is_gone or not path.exists():
                    self.problems.pop(path, None)
                else:
                    self._check_config(stream)
            except (ReadError, OSError) as error:
                self._report_problems(path, [error])
            except Conflict as conflict:
                self._report_problems(path, [ReadError(path, _explain(conflict, folder.run))])

    def _check_config(self, stream: ProjectorStream) -> None:
        state = stream.state()
        if state == self._sent.get(stream.path):
            return
        series, problems = stream.read()
        self._report_problems(stream.path, problems)
        try:
            if series:
                self._send_unless_known(stream, state_checksum(state), series)
        except Refused as refusal:
            if refusal.status not in SEGMENT_FAULT_STATUSES:
                raise
            self._report_problems(stream.path, [*problems, ReadError(stream.path, str(refusal))])
        self._sent[stream.path] = state

    def _send_unless_known(
        self, stream: ProjectorStream, checksum: int, series: Sequence[SeriesPoints]
    ) -> None:
        """Send the series as a new generation, unless the newest one has this checksum."""
        for _ in range(_SEND_ATTEMPTS_MAX):
            generation = 0
            cursor = self._cursors.find(stream.name)
            if cursor is not None and cursor.offset:
                if cursor.checksum == checksum:
                    self._cursors.start_file(stream.name, is_known=True)
                    return
                generation = cursor.generation + 1
            if self._send(stream.folder, stream.encode(series, checksum, generation)):
                return
        raise ReadError(
            stream.path,
            "other uploaders keep sending other states of it: send it with only one of them",
        )

    def _send(self, folder: Folder, segment: EncodedSegment) -> bool:
        """Send a generation; return False if another uploader has sent it before.

        Then its cursor is stored.
        """
        for digest, blob in segment.blobs.items():
            self._client.upload_blob(self._experiment_id, digest, blob)

        try:
            result, was_retried = self._client.write_batch(self._experiment_id, segment.body)
        except Conflict as conflict:
            if conflict.offset is None:
                raise
            self._cursors.reset(segment.stream, conflict.offset, conflict.checksum or 0)
            return False

        if len(result.cursors) != 1 or result.cursors[0].stream != segment.stream:
            raise unreadable_answer("cursors: not those of the batch")
        self._cursors.update(result.cursors[0])
        self._on_sent(folder, segment, (result, was_retried))
        return True

    def _report_problems(self, path: Path, errors: Iterable[ReadError | OSError]) -> None:
        sentences = [str(error) for error in errors]
        for sentence in sentences:
            if sentence not in self.problems.get(path, []):
                self._report_problem(sentence)
        self.problems[path] = sentences


def _explain(conflict: Conflict, run: str) -> str:
    if conflict.code == RUN_DELETED:
        return run_deleted_text(run)
    return f"one of its files changed while it was sent ({conflict})"
