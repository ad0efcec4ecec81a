"""Sends what the Embedding Projector shows: the files of each projector config, again whenever one of them changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from tbupload.errors import Conflict, ReadError, Refused
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import SeriesPoints
from tbupload.http.client import Client
from tbupload.http.response_schema import unreadable
from tbupload.http.wire_limits import WireLimits
from tbupload.logdir.tree import Folder
from tbupload.upload.batches import EncodedSegment
from tbupload.upload.projector_stream import ProjectorStream, checksum_of
from tbupload.upload.scheduler import FAULTS_OF_A_SEGMENT, Sent
from tbupload.upload.stream_cursors import CursorBook

LOOK_SECONDS: Final = 1.0
"""How often the files are looked at, at most."""

_SENDERS_MAX: Final = 5
"""Uploaders that may send other states of one config at the same moment."""

SentBeside = Callable[[Folder, EncodedSegment, Sent], None]
"""Is told of each segment that was committed, and of which folder's run it is."""


class ProjectorUpload:
    """The projector configs of one logdir, on their way to one experiment.

    A config's stream is of a new generation whenever the state of its files is another than that of the newest
    generation: also when it is one that was sent before.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: str,
        logdir: Path,
        choice: tuple[SeriesFilter, WireLimits, CursorBook],
        tell: tuple[SentBeside, Callable[[str], None]],
    ) -> None:
        self.troubles: dict[Path, list[str]] = {}
        self._client = client
        self._experiment_id = experiment_id
        self._logdir = logdir
        self._filter, self._limits, self._cursors = choice
        self._sent_beside, self._problem = tell
        self._sent: dict[Path, bytes] = {}
        self._look_at = 0.0

    def turn(self, folders: Iterable[Folder], *, is_last: bool = False) -> None:
        """Looks at the configs in these folders, when it is time to, and sends what has changed. Raises ServerError."""
        if time.monotonic() < self._look_at and not is_last:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        for folder in list(folders):
            stream = ProjectorStream(folder, self._logdir, self._filter, self._limits)
            path = stream.path
            try:
                if folder.is_gone or not path.exists():
                    self.troubles.pop(path, None)
                else:
                    self._look(stream)
            except (ReadError, OSError) as error:
                self._note(path, [error])
            except Conflict as conflict:
                self._note(path, [ReadError(path, f"one of its files changed while it was sent ({conflict})")])

    def _look(self, stream: ProjectorStream) -> None:
        state = stream.state()
        if state == self._sent.get(stream.path):
            return
        series, troubles = stream.read()
        self._note(stream.path, troubles)
        try:
            if series:
                self._send_unless_known(stream, checksum_of(state), series)
        except Refused as refusal:
            if refusal.status not in FAULTS_OF_A_SEGMENT:
                raise
            self._note(stream.path, [*troubles, ReadError(stream.path, str(refusal))])
        self._sent[stream.path] = state

    def _send_unless_known(self, stream: ProjectorStream, checksum: int, series: Sequence[SeriesPoints]) -> None:
        """Sends them as a new generation of the config's stream, unless the newest one ends with this checksum."""
        for _ in range(_SENDERS_MAX):
            generation = 0
            cursor = self._cursors.find(stream.name)
            if cursor is not None and cursor.offset:
                if cursor.checksum == checksum:
                    self._cursors.begin(stream.name, is_known=True)
                    return
                generation = cursor.generation + 1
            if self._send(stream.folder, stream.encode(series, checksum, generation)):
                return
        raise ReadError(stream.path, "other uploaders keep sending other states of it: let only one of them send it")

    def _send(self, folder: Folder, segment: EncodedSegment) -> bool:
        """Whether it was committed; otherwise another uploader has sent this generation, as is known from then on."""
        for digest, blob in segment.blobs.items():
            self._client.put_blob(self._experiment_id, digest, blob)
        try:
            result, is_repeat = self._client.write_batch(self._experiment_id, segment.body)
        except Conflict as conflict:
            if conflict.offset is None:
                raise
            self._cursors.move(segment.stream, conflict.offset, conflict.checksum or 0)
            return False
        if len(result.cursors) != 1 or result.cursors[0].stream != segment.stream:
            raise unreadable("cursors: not those of what was sent")
        self._cursors.record(result.cursors[0])
        self._sent_beside(folder, segment, (result, is_repeat))
        return True

    def _note(self, path: Path, troubles: Iterable[ReadError | OSError]) -> None:
        sentences = [str(trouble) for trouble in troubles]
        for sentence in sentences:
            if sentence not in self.troubles.get(path, []):
                self._problem(sentence)
        self.troubles[path] = sentences
