"""Detect that a run was trained again from its start, into files that replace the uploaded ones.

The points of two trainings in one series are a curve that neither of them has, and a point that
loses its step is not kept. So this is detected before anything of the second training is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from itertools import groupby
from pathlib import Path
from typing import Final

from tbupload.errors import ReadError, Refused, RunRetrained
from tbupload.events.event_file import EventFileReader
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import Chunk, SeriesPoints
from tbupload.http.client import Client, ExperimentStreams
from tbupload.logdir.entries import FileEntry
from tbupload.logdir.scan import FoundFile, scan_logdir
from tbupload.remote_files import make_path
from tbupload.upload.stream_cursors import StreamCursors
from tbwire.points import DATA_CLASSES, DataClassName

FIRST_BYTES: Final = 1 << 20
"""Bytes of a file, about, in which its first points are searched before an upload starts."""

TAGS_COMPARED_MAX: Final = 100
"""Series of a chunk that are compared with the stored ones, at most."""

FORBIDDEN: Final = 403


class Verdict(Enum):
    """Relation of a new file's first points to the stored points of its run.

    RETRAINED: they begin again at a step that is stored, later than everything stored.
    CONTINUED: they follow what is stored, as after a rotation of files, or are the same points.
    UNKNOWN: the file has no points yet, or only series that are not stored.
    """

    RETRAINED = auto()
    CONTINUED = auto()
    UNKNOWN = auto()


class RetrainingGuard:
    """Compares the first points of new files with those stored of their run, before they are sent.

    A run with an uploaded file that is still there is not suspected: a resumed training writes new
    files beside the old ones. Nothing is compared unless `is_active`. `cursors` are those of the
    experiment: the files that were uploaded.

    Args:
        client: The server.
        streams: The experiment; its cursors are read here.
        series_filter: Selects what is read.
        is_active: Whether to compare.
    """

    def __init__(
        self,
        client: Client,
        streams: ExperimentStreams,
        series_filter: SeriesFilter,
        *,
        is_active: bool = True,
    ) -> None:
        self.is_active = is_active
        self.cursors = StreamCursors(series_filter.digest(), streams.cursors)
        self._client = client
        self._experiment_id = streams.experiment_id
        self._filter = series_filter
        self._limits = streams.limits.read_limits(FIRST_BYTES)
        self._emptied_runs: set[str] = set()
        self._compared: dict[FileEntry, set[str]] = {}  # tags, of files whose verdict is UNKNOWN

    def find_retrained(self, logdir: Path) -> str | None:
        """Return the name of a run of the log directory that was trained again; None without one.

        Reads the first record of a file of each stored run; of suspected runs, the first points.
        """
        files = scan_logdir(logdir, self._filter, self._limits.name_chars_max).files
        for run, run_files in groupby(files, key=_run_of):
            if not self.cursors.has_run(run):
                continue
            paths = [file.path for file in run_files]
            if any(self._is_uploaded(run, path) for path in paths):
                continue
            if any(self._is_retrained(run, path) for path in paths):
                return run
        return None

    def note_deleted(self, entry: FileEntry) -> None:
        """Suspect the run of a deleted file if no file that was uploaded of it is left."""
        self._compared.pop(entry, None)
        # A batch in flight may be stored already, without an answer yet.
        may_be_stored = entry.committed or entry.folder.is_in_flight
        if may_be_stored and not self._has_uploaded_entry(entry):
            self._emptied_runs.add(entry.folder.run)

    def check(self, entry: FileEntry, chunk: Chunk) -> None:
        """Compare the next chunk of a file before it is sent. Raise RunRetrained.

        Does nothing for a file whose first points were accepted.
        """
        if not self.compares(entry, chunk.start):
            return
        self._compared.setdefault(entry, set())

        compared = self._compared[entry]
        series = [each for each in chunk.series if each.tag not in compared]
        compared.update(each.tag for each in series)
        verdict = self._compare(entry.folder.run, series)
        if verdict is Verdict.RETRAINED:
            raise RunRetrained(entry.folder.run)
        if verdict is Verdict.CONTINUED:
            del self._compared[entry]

    def compares(self, entry: FileEntry, start: int) -> bool:
        """Return whether `check` would compare the chunk of a file that begins at byte `start`."""
        if not self.is_active:
            return False
        return entry in self._compared or (start == 0 and self._is_suspected(entry))

    def _is_suspected(self, entry: FileEntry) -> bool:
        """Return whether the entry's run is stored, and no file that was uploaded of it is left."""
        run = entry.folder.run
        is_stored = entry.committed or run in self._emptied_runs or self.cursors.has_run(run)
        if not is_stored or self._has_uploaded_entry(entry):
            return False
        return not any(
            self._is_uploaded(run, make_path(other.path)) for other in self._others(entry)
        )

    def _has_uploaded_entry(self, entry: FileEntry) -> bool:
        return any(other.committed for other in self._others(entry))

    def _others(self, entry: FileEntry) -> Iterable[FileEntry]:
        """Return the other files of the run whose first points were accepted or not yet read."""
        return (
            other
            for other in entry.folder.files
            if other is not entry and not other.is_gone and other not in self._compared
        )

    def _is_uploaded(self, run: str, path: Path) -> bool:
        """Return whether the file was uploaded, by its first record: a writer puts the time there.

        That is true of a truncated file as well: it is of the same training.
        """
        try:
            digest = self._open(path).first_record_digest()
        except (ReadError, OSError):
            return False
        return digest is not None and self.cursors.has_stream((run, path.name, digest))

    def _is_retrained(self, run: str, path: Path) -> bool:
        reader = self._open(path)
        try:
            while reader.offset < FIRST_BYTES and (chunk := reader.read()) is not None:
                if chunk.series:
                    return self._compare(run, chunk.series) is Verdict.RETRAINED
        except (ReadError, OSError):
            # A file that cannot be read proves nothing about the run.
            pass  # the upload reports it
        return False

    def _open(self, path: Path) -> EventFileReader:
        return EventFileReader(path, start=0, series_filter=self._filter, limits=self._limits)

    def _compare(self, run: str, series: list[SeriesPoints]) -> Verdict:
        """Return the verdict on the first points that were read of a file of this run."""
        firsts = {each.tag: each.columns for each in series[:TAGS_COMPARED_MAX]}
        verdict = Verdict.UNKNOWN
        for name, data_class in DATA_CLASSES.items():
            tags = [tag for tag, points in firsts.items() if points.data_class is data_class]
            for tag, stored in self._list_stored(name, run, tags).items():
                # One series that continues is enough: a training that begins again begins with all
                # of them.
                if firsts[tag].steps.min() > stored["max_step"]:
                    return Verdict.CONTINUED
                if firsts[tag].wall_times.min() > stored["max_wall_time"]:
                    verdict = Verdict.RETRAINED
                elif verdict is Verdict.UNKNOWN:
                    verdict = Verdict.CONTINUED
        return verdict

    def _list_stored(
        self, name: DataClassName, run: str, tags: list[str]
    ) -> dict[str, dict[str, float]]:
        """Return the tags that are stored: {tag: {max_step, max_wall_time, ...}}.

        Empty with a token that may not read: nothing is compared from then on.
        """
        if not (tags and self.is_active):
            return {}
        try:
            listing = self._client.list_series(self._experiment_id, name, run, tags)
        except Refused as refusal:
            # A token that may only append is for machines: they upload without the comparison.
            if refusal.status != FORBIDDEN:
                raise
            self.is_active = False
            return {}
        return {tag: fields for tag, fields in listing.items() if tag in tags}


def _run_of(file: FoundFile) -> str:
    return file.run
