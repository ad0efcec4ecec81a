"""Opens a data directory and tells how it was refused; run in a process that is another user or
sees another disk.
"""

from pathlib import Path

from tbservice.errors import StartupError
from tbservice.local.embedded.data_directory import DataDirectory


def refusal(path: str) -> str:
    """The message with which the directory is refused; fails when it is not."""
    try:
        DataDirectory.open(Path(path)).close()
    except StartupError as error:
        return str(error)
    raise AssertionError(f"{path} was opened")
