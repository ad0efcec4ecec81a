"""Export of event files, one per run: a log directory for TensorBoard, or to upload again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Final

from tbupload.errors import BlobLost
from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.export.destination import as_output_errors, commit_file, temporary_path
from tbupload.export.directory_names import event_file_name, run_directory
from tbupload.export.event_records import (
    is_simple_value,
    scalar_records,
    version_record,
)
from tbupload.export.plan import RunGroup
from tbupload.export.point_events import blob_head, blob_points, write_blob_record, write_tensors
from tbupload.export.remote_series import LostPoint, RemoteBlob, RemoteSeries, SeriesPart
from tbwire.points import BlobSequencePoints, ScalarPoints, TensorPoints

_APPEND_BYTES: Final = 1 << 20


class RunFiles:
    """Event files of runs while they are written: with temporary names, one open at a time."""

    def __init__(self, directory: Path, start_times: Mapping[str, float]) -> None:
        """Prepare the files of the runs in `start_times` (seconds since the epoch)."""
        self.directory = directory
        self._paths = {
            run: event_path(directory, run, start_time) for run, start_time in start_times.items()
        }
        self._start_times = start_times
        self._started_runs: set[str] = set()
        self._run: str | None = None
        self._file: IO[bytes] | None = None

    def missing(self) -> set[str]:
        """Return the runs without a complete file."""
        return {run for run, path in self._paths.items() if not path.exists()}

    def open_run(self, run: str) -> IO[bytes]:
        """Return the run's file for appending, created with a version record. Raise OSError."""
        if run == self._run and self._file is not None:
            return self._file

        self.close()
        path = temporary_path(self._paths[run])
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab" if run in self._started_runs else "wb", buffering=_APPEND_BYTES)
        self._run = run

        if run not in self._started_runs:
            self._started_runs.add(run)
            self._file.write(version_record(self._start_times[run]))
        return self._file

    def commit(self, runs: Iterable[str]) -> int:
        """Flush the files of these runs to disk, rename them, and return their size in bytes."""
        size = 0
        for run in sorted(runs):
            self.open_run(run)
            self.close()
            size += temporary_path(self._paths[run]).stat().st_size
            commit_file(temporary_path(self._paths[run]), self._paths[run])
        return size

    def close(self) -> None:
        """Close the open file, if any."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def discard(self) -> None:
        """Delete the temporary files; ignore errors, since on a full disk even closing may fail."""
        with suppress(OSError):
            self.close()
        for run in self._started_runs:
            with suppress(OSError):
                temporary_path(self._paths[run]).unlink(missing_ok=True)


def event_path(directory: Path, run: str, start_time: float) -> Path:
    """Return the path of a run's event file."""
    return directory / run_directory(run) / event_file_name(run, start_time)


class EventFileExporter:
    """Writes groups of runs; `notes` counts points written without some fields, by reason.

    Points are left out if the server has lost their bytes.
    """

    def __init__(
        self,
        client: ExportClient,
        series_filter: SeriesFilter,
        on_points: Callable[[int], None],
        keep_lost: Callable[[list[LostPoint]], None],
    ) -> None:
        """Create an exporter.

        Args:
            client: the client of the experiment.
            series_filter: the series to write.
            on_points: called with the number of points of each part.
            keep_lost: called with the lost points of a group before its files get their names, so
                that they are not forgotten if the export is killed in between.
        """
        self.notes: Counter[str] = Counter()
        self._lost: list[LostPoint] = []
        self._client = client
        self._filter = series_filter
        self._on_points = on_points
        self._keep_lost = keep_lost

    def write(self, group: RunGroup, files: RunFiles) -> int:
        """Write the missing runs of a group, all or none of them; return their size in bytes.

        Raise OutputError or ServerError.
        """
        missing = files.missing()
        notes: Counter[str] = Counter()
        self._lost = []

        with as_output_errors(files.directory):
            try:
                for job in group.jobs:
                    narrowed = replace(job, runs=[run for run in job.runs if run in missing])
                    tensors_lost: list[LostPoint] = []
                    parts = (
                        self._client.read_points(narrowed, tensors_lost.append)
                        if narrowed.runs
                        else iter(())
                    )
                    # Read all rows first: fetching the blobs would stall the response.
                    if job.kind == "blob_sequences":
                        parts = iter(list(parts))
                    self._write(parts, files, missing, notes)
                    self._client.check_readable(tensors_lost)
                    self._lost += tensors_lost
                self._keep_lost(self._lost)
                size = files.commit(missing)
            except BaseException:
                files.discard()
                raise

        self.notes += notes
        return size

    def _write(
        self, parts: Iterator[SeriesPart], files: RunFiles, missing: set[str], notes: Counter[str]
    ) -> None:
        is_first = True
        for part in parts:
            series = part.series
            if series.run in missing and self._filter.accepts_series(series.tag, series.plugin):
                metadata = series.metadata if is_first else None
                self._write_part(files.open_run(series.run), part, metadata, notes)
                # An empty part has no value to carry the metadata: write it with the next part.
                is_first = part.is_last or (is_first and not len(part.columns.steps))
            self._on_points(len(part.columns.steps))

    def _write_part(
        self, file: IO[bytes], part: SeriesPart, metadata: bytes | None, notes: Counter[str]
    ) -> None:
        columns = part.columns
        if isinstance(columns, ScalarPoints):
            is_simple = is_simple_value(part.series.tag, part.series.metadata)
            file.writelines(scalar_records(part.series.tag, columns, metadata, is_simple=is_simple))
        elif isinstance(columns, TensorPoints):
            write_tensors(file, part.series.tag, columns, metadata, notes)
        else:
            self._write_blobs(file, part.series, columns, metadata, notes)

    def _write_blobs(
        self,
        file: IO[bytes],
        series: RemoteSeries,
        columns: BlobSequencePoints[RemoteBlob],
        metadata: bytes | None,
        notes: Counter[str],
    ) -> None:
        """Write one record per point, except for points with a blob that the server has lost."""
        points = blob_points(series, columns, metadata)
        blobs = (blob for point in points for blob in point.blobs)
        with closing(self._client.read_blobs(blobs)) as contents:
            for point in points:
                begin = file.tell()
                point_contents = islice(contents, len(point.blobs))
                head = blob_head(series, point, metadata, notes)
                try:
                    write_blob_record(file, head, point_contents)
                except BlobLost as lost:
                    file.seek(begin)
                    file.truncate()
                    deque(point_contents, maxlen=0)  # skip the remaining blobs of this point
                    self._lost.append(LostPoint(series.run, series.tag, point.step, str(lost)))
                else:
                    metadata = None
