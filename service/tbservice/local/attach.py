"""The servers of a data directory for maintenance commands: running ones, or started for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tbservice.errors import StartupError
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.instance import Instance, Servers, make_settings
from tbservice.local.embedded.ports import LOOPBACK
from tbservice.local.embedded.postgres import Postgres
from tbservice.local.embedded.seaweedfs import SeaweedFS
from tbservice.settings import Settings

_DEFAULT_URL: Final = "http://127.0.0.1:6060"


@contextmanager
def open_instance(path: Path, *, creates: bool = False) -> Iterator[Settings]:
    """Yield the settings of a data directory's servers; start them if they do not run.

    `backup_database_url` is that of PostgreSQL's superuser.

    The public URL is that of the `tbservice up` that runs on it, else that of the last one.

    Args:
        path: The data directory of `tbservice up`.
        creates: Whether it must be new or empty; otherwise it must exist.

    Raises:
        StartupError: The directory is not what it must be, or a server does not start.
    """
    path = path.expanduser().absolute()
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK) and _is_there(path):
        raise StartupError(f"{path} is another user's: run this as the user of 'tbservice up'")
    if creates and path.exists() and any(path.iterdir()):
        raise StartupError(
            f"{path} is not empty: name a new directory with --data-dir, or delete this one if an "
            "interrupted restore has left it"
        )
    if not creates and not (path / "postgres").exists():
        raise StartupError(f"{path} is no data directory of 'tbservice up'")
    if not creates and DataDirectory.is_in_use(path):
        directory = DataDirectory.attach(path)
        ports = directory.saved_ports()
        postgres = Postgres(directory, ports.pop("postgres"))
        yield _settings(Servers(directory, postgres, SeaweedFS(directory, ports)))
        return
    with Instance(path) as instance:
        yield _settings(instance)


def is_served(path: Path) -> bool:
    """Return whether `tbservice up` serves a data directory now, and not only another command."""
    path = path.expanduser().absolute()
    return DataDirectory.is_in_use(path) and DataDirectory.attach(path).is_served


def _is_there(path: Path) -> bool:
    """Return whether a path exists, or is in a directory that this user cannot enter."""
    try:
        return path.exists()
    except PermissionError:
        return True


def _settings(instance: Servers) -> Settings:
    url = instance.directory.public_url or _DEFAULT_URL
    settings = make_settings(instance, host=LOOPBACK, port=0, public_url=url)
    return settings.model_copy(update={"backup_database_url": instance.postgres.superuser_url()})
