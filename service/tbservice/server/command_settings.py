"""Settings of the service that a command of `tbservice` is about, also of a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from tbservice.errors import StartupError
from tbservice.settings import Settings, read_settings

_NO_SERVICE: Final = (
    "which service? For one that 'tbservice up' started, name its data directory: --data-dir DIR "
    "(without that option, 'up' uses ~/.local/share/tbhub). For one on servers of your own, set "
    "TBHUB_DATABASE_URL and the other TBHUB_* settings of 'tbservice serve'"
)


@contextmanager
def open_settings(data_dir: Path | None, *, creates: bool = False) -> Iterator[Settings]:
    """Yield the settings of the environment, or those of a data directory of `tbservice up`.

    The servers of the directory are used while they run, and started for the block otherwise. With
    `creates`, the directory must be new. Raises StartupError.
    """
    if data_dir is None:
        yield _read_settings()
        return
    from tbservice.local.attach import open_instance  # noqa: PLC0415 - needs the extra `up`

    with open_instance(data_dir, creates=creates) as settings:
        yield settings


def _read_settings() -> Settings:
    try:
        return read_settings()
    except ValidationError as error:
        missing = {item["loc"] for item in error.errors() if item["type"] == "missing"}
        if ("database_url",) in missing:
            raise StartupError(_NO_SERVICE) from None
        raise
