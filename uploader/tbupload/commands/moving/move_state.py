"""The state from which an interrupted move continues: a file beside the exported ones."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tbupload.commands.moving.workspaces import MoveWorkspace
from tbupload.config import replace_file
from tbupload.errors import OutputError
from tbupload.export.destination import as_output_errors
from tbupload.file_lock import locked

_STATE: Final = "move.json"
_LOCK: Final = ".lock"
_LOCK_SECONDS: Final = 1.0


@dataclass
class MoveState:
    """How far a move is, in a directory of its own.

    `request_key` is the idempotency key of creating the copy, and is saved before that. `is_equal`:
    everything of the copy was found equal, so that the old one may be gone. `version` is of the
    experiment when the export to the files began.
    """

    directory: Path
    request_key: str
    copy_id: str | None = None
    is_equal: bool = False
    version: str | None = None

    @property
    def files(self) -> Path:
        """Return the directory of the event files."""
        return self.directory / "files"

    def save(self) -> None:
        """Write the file atomically. Raises OutputError."""
        fields = {name: value for name, value in asdict(self).items() if name != "directory"}
        with as_output_errors(self.directory):
            replace_file(self.directory / _STATE, [json.dumps(fields)])

    def begin_export(self, version: str) -> None:
        """Delete event files of an experiment that has changed since. Raises OutputError."""
        if self.version != version:
            shutil.rmtree(self.files, ignore_errors=True)
            self.version = version
            self.save()

    def begin_again(self) -> None:
        """Forget the copy, which was deleted meanwhile."""
        self.request_key, self.copy_id, self.is_equal = str(uuid.uuid4()), None, False
        self.save()


@contextmanager
def open_state(
    work_dir: Path | None, source: MoveWorkspace, experiment_id: str, target: MoveWorkspace
) -> Iterator[MoveState]:
    """Open the state of a move during the block, a new one if it was not begun before.

    Raises OutputError if the directory cannot be written, or another command moves the same.
    """
    key = json.dumps([*source.key, *target.key])
    name = f"{experiment_id}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    directory = (work_dir or _default_directory()).expanduser() / name
    try:
        with as_output_errors(directory):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(directory / _LOCK, _LOCK_SECONDS):
            state = _read(directory) or MoveState(directory, str(uuid.uuid4()))
            state.save()
            yield state
    except TimeoutError as error:
        raise OutputError(f"{directory}: another command is moving this experiment") from error


def delete_state(state: MoveState) -> None:
    """Delete the directory of a move that is complete."""
    shutil.rmtree(state.directory, ignore_errors=True)


def _read(directory: Path) -> MoveState | None:
    """Return the saved state; None if there is none, or it is no such file."""
    try:
        fields = json.loads((directory / _STATE).read_bytes())
        return MoveState(
            directory,
            str(fields["request_key"]),
            fields["copy_id"],
            is_equal=bool(fields["is_equal"]),
            version=fields["version"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _default_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache")
    return Path(base, "tbhub", "moves")
