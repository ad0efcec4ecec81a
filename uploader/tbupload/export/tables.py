"""Exports tables: the server's own Parquet or CSV, a file a job."""

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


def table_path(directory: Path, number: int, job: Job, chosen: str) -> Path:
    """Where a job's table is."""
    return directory / job.kind / f"part-{number:05d}.{chosen}"


def write_table(
    client: ExportClient,
    job: Job,
    chosen: str,
    path: Path,
    on_bytes: Callable[[int], None],
    keep_lost: Callable[[list[LostPoint]], None],
) -> int:
    """Writes a job's table, whole or not at all; its size in bytes. `arrived` is told of each piece's bytes.

    Points that the server has lost are left out, and given to `keep_lost` before the file has its name: an export that
    is killed in between does not forget them.
    """
    size = 0
    last = b""
    lost: list[LostPoint] = []
    with atomic_file(path) as file, client.read_table(job, chosen, lost.append) as pieces:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
            last = (last + piece)[-len(_PARQUET_MAGIC) :]
            on_bytes(len(piece))
        if chosen == "parquet" and last != _PARQUET_MAGIC:
            raise Unreachable("the answer is not whole", is_mid_response=True)
        client.check_readable(lost)
        keep_lost(lost)
    return size
