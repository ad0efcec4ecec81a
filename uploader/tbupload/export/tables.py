"""Export of Parquet and CSV files, which the server encodes: one file per job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tbupload.errors import Unreachable
from tbupload.export.client import ExportClient
from tbupload.export.destination import atomic_file
from tbupload.export.plan import Job
from tbupload.export.remote_series import LostPoint

_PARQUET_MAGIC: Final = b"PAR1"
"""The last four bytes of every Parquet file (`parquet-format`, README, "File format")."""


def table_path(directory: Path, number: int, job: Job, file_format: str) -> Path:
    """Return the path of a job's table."""
    return directory / job.kind / f"part-{number:05d}.{file_format}"


def write_table(
    client: ExportClient,
    job: Job,
    file_format: str,
    path: Path,
    on_bytes: Callable[[int], None],
    keep_lost: Callable[[list[LostPoint]], None],
) -> int:
    """Write a job's table atomically, and return its size in bytes.

    Args:
        client: the client of the experiment.
        job: the series.
        file_format: "parquet" or "csv".
        path: the file to write.
        on_bytes: called with the size of each chunk that is written.
        keep_lost: called with the points that the server has lost, before the file gets its name:
            so they are not forgotten if the export is killed in between.

    Raises:
        Unreachable: no response, or it is incomplete.
        OutputError: the file cannot be written.
    """
    size = 0
    last = b""
    lost: list[LostPoint] = []

    with atomic_file(path) as file, client.read_table(job, file_format, lost.append) as chunks:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
            last = (last + chunk)[-len(_PARQUET_MAGIC) :]
            on_bytes(len(chunk))

        if file_format == "parquet" and last != _PARQUET_MAGIC:
            raise Unreachable("the table is incomplete", is_mid_response=True)
        client.check_readable(lost)
        keep_lost(lost)

    return size
