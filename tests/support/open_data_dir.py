"""Open a data directory and print how it was refused; run it as another user, or with another disk."""

from pathlib import Path

from tbservice.errors import StartupError
from tbservice.local.embedded.data_directory import DataDirectory


def refusal(path: str) -> str:
    """Return the message with which the directory is refused; fails if it is not."""
    try:
        DataDirectory.open(Path(path)).close()
    except StartupError as error:
        return str(error)
    raise AssertionError(f"{path} was opened")
