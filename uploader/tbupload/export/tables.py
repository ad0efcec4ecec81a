"""Files of an export to Parquet or CSV: points by jobs and tables, as the server encodes them.

Blobs are files that are named by their bytes, so equal ones are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tbupload.errors import BlobLost, Unreachable
from tbupload.export.client import ExportClient
from tbupload.export.destination import atomic_file
from tbupload.export.plan import PARTED_TABLES, Job, TableJob
from tbupload.export.remote_series import LostPoint, RemoteBlob, SeriesPart
from tbwire.media_types import blob_file
from tbwire.points import BlobSequencePoints

_PARQUET_MAGIC: Final = b"PAR1"
"""The last four bytes of every Parquet file (`parquet-format`, README, "File format")."""


def points_path(directory: Path, number: int, job: Job, file_format: str) -> Path:
    """Return the path of a job's points."""
    return directory / job.kind / f"part-{number:05d}.{file_format}"


def table_path(directory: Path, job: TableJob, file_format: str) -> Path:
    """Return the path of a table, or of its part."""
    if job.table in PARTED_TABLES:
        return directory / job.table / f"part-{job.number:05d}.{file_format}"
    return directory / f"{job.table}.{file_format}"


def write_points(
    client: ExportClient,
    job: Job,
    path: Path,
    on_bytes: Callable[[int], None],
    keep_lost: Callable[[list[LostPoint]], None],
) -> int:
    """Write a job's points atomically, and return the size in bytes; the suffix is the format.

    Args:
        client: the client of the experiment.
        job: the series.
        path: the file to write.
        on_bytes: called with the size of each chunk that is written.
        keep_lost: called with the points that the server has lost, before the file gets its name:
            so they are not forgotten if the export is killed in between.

    Raises:
        Unreachable: no response, or it is incomplete.
        OutputError: the file cannot be written.
    """
    lost: list[LostPoint] = []

    def check_lost() -> None:
        client.check_readable(lost)
        keep_lost(lost)

    with client.read_points_file(job, path.suffix[1:], lost.append) as chunks:
        return _write(chunks, path, on_bytes, check_lost)


def write_table(
    client: ExportClient, job: TableJob, path: Path, on_bytes: Callable[[int], None]
) -> int:
    """Write a table as `write_points` does points. Raise Refused if it is over a limit, too."""
    with client.read_table(job, path.suffix[1:]) as chunks:
        return _write(chunks, path, on_bytes)


def write_blob_files(
    client: ExportClient,
    job: Job,
    directory: Path,
    on_bytes: Callable[[int], None],
    keep_lost: Callable[[list[LostPoint]], None],
) -> tuple[set[bytes], int]:
    """Write the blobs of a job that have no file yet, each atomically.

    Args:
        client: the client of the experiment.
        job: the blob sequence series.
        directory: the directory of the export.
        on_bytes: called with the size of each chunk that is written.
        keep_lost: called with the points that have a blob which the server has lost.

    Returns:
        The SHA-256 of all blobs of the job, and the bytes written now.

    Raises:
        Unreachable: no response, or it is incomplete.
        OutputError: a file cannot be written.
    """
    # Read all rows first: fetching the blobs would stall the response.
    parts = list(client.read_points(job, lambda _: None))
    blobs = {blob.sha256: blob for _, blob in _iter_blobs(parts)}
    missing = {
        digest: blob for digest, blob in blobs.items() if not _path(directory, blob).exists()
    }
    size = 0
    lost: dict[bytes, str] = {}
    with closing(client.read_blobs(missing.values())) as contents:
        for blob, chunks in zip(missing.values(), contents):
            try:
                size += _write(chunks, _path(directory, blob), on_bytes)
            except BlobLost as error:
                lost[blob.sha256] = str(error)

    keep_lost(
        [
            LostPoint(part.series.run, part.series.tag, step, lost[blob.sha256])
            for (part, step), blob in _iter_blobs(parts)
            if blob.sha256 in lost
        ]
    )
    return set(blobs), size


def _path(directory: Path, blob: RemoteBlob) -> Path:
    return directory / blob_file(blob.sha256, blob.content_type)


def _iter_blobs(parts: Iterable[SeriesPart]) -> Iterator[tuple[tuple[SeriesPart, int], RemoteBlob]]:
    """Yield each blob of each point, with the point's part and step."""
    for part in parts:
        if isinstance(part.columns, BlobSequencePoints):
            steps = part.columns.steps.tolist()
            for step, sequence in zip(steps, part.columns.sequences):
                for blob in sequence:
                    yield (part, step), blob


def _write(
    chunks: Iterable[bytes],
    path: Path,
    on_bytes: Callable[[int], None],
    before_commit: Callable[[], None] = lambda: None,
) -> int:
    size = 0
    last = b""
    with atomic_file(path) as file:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
            last = (last + chunk[-len(_PARQUET_MAGIC) :])[-len(_PARQUET_MAGIC) :]
            on_bytes(len(chunk))

        if path.suffix == ".parquet" and last != _PARQUET_MAGIC:
            raise Unreachable("the table is incomplete", is_mid_response=True)
        before_commit()
    return size
