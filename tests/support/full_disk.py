"""A real PostgreSQL on a small disk, filled and emptied; run it inside a mount namespace."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path

from tbservice.db.database import Database
from tbservice.errors import Unavailable
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import choose_ports
from tbservice.local.embedded.postgres import Postgres


def main(directory: Path) -> None:
    """Print as JSON what `check_writable` says before, while and after the disk is full."""
    files = DataDirectory.open(directory / "data")
    postgres = Postgres(files, choose_ports(["postgres"], {})["postgres"])
    child = postgres.start()
    try:
        postgres.wait_ready(child)
        postgres.ensure_database()
        database = Database(postgres.url(), 1)
        told = [said(database)]
        fill(directory / "filler")
        told.append(said(database))
        (directory / "filler").unlink()
        told.append(said(database))
        database.close()
    finally:
        child.request_stop()
        child.stop()
    sys.stdout.write(json.dumps(told))


def said(database: Database) -> str:
    """Return what the check says, nothing when all is well."""
    try:
        database.check_writable()
    except Unavailable as error:
        return error.detail
    return ""


def fill(file: Path) -> None:
    """Write until there is no room for another byte."""
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
