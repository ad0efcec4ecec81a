"""Where the writers' files go, and names for them that tell nothing about the machine they were
made on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent


def make_empty(name: str) -> Path:
    """The directory `tests/data/<name>`, emptied."""
    directory = DATA / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def settle(directory: Path) -> None:
    """Gives every event file a name without host, time and process, and removes everything else a
    writer left.
    """
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif ".tfevents." not in path.name or path.name.endswith(".profile-empty"):
            path.unlink()
    for run in {path.parent for path in directory.rglob("*.tfevents.*")}:
        for index, path in enumerate(sorted(run.glob("*.tfevents.*"))):
            suffix = ".v2" if path.name.endswith(".v2") else ""
            path.rename(run / f"events.out.tfevents.1700000000.writer.{index}{suffix}")
