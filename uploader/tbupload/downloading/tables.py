"""Exports tables: the server's own Parquet or CSV, a file a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tbupload.downloading.output import whole_file
from tbupload.downloading.plan import Job
from tbupload.downloading.server import ExportServer
from tbupload.errors import Unreachable

_PARQUET_END: Final = b"PAR1"


def table_path(directory: Path, number: int, job: Job, chosen: str) -> Path:
    """Where a job's table is."""
    return directory / job.kind / f"part-{number:05d}.{chosen}"


def write_table(server: ExportServer, job: Job, chosen: str, path: Path, arrived: Callable[[int], None]) -> int:
    """Writes a job's table, whole or not at all; its size in bytes. `arrived` is told of each piece's bytes."""
    size = 0
    last = b""
    with whole_file(path) as file, server.read_table(job, chosen) as pieces:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
            last = (last + piece)[-len(_PARQUET_END) :]
            arrived(len(piece))
        if chosen == "parquet" and last != _PARQUET_END:
            raise Unreachable("the answer is not whole", is_in_the_middle=True)
    return size
