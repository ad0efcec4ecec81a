"""The blobs of an export as tables: files that are named by their bytes, so equal ones are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from tbupload.errors import BlobLost
from tbupload.export.client import ExportClient
from tbupload.export.destination import atomic_file
from tbupload.export.plan import Job
from tbupload.export.remote_series import LostPoint, RemoteBlob, SeriesPart
from tbwire.media_types import blob_file
from tbwire.points import BlobSequencePoints


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
                size += _write(_path(directory, blob), chunks, on_bytes)
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


def _write(path: Path, chunks: Iterable[bytes], on_bytes: Callable[[int], None]) -> int:
    size = 0
    with atomic_file(path) as file:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
            on_bytes(len(chunk))
    return size


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
