"""Say when a run has begun again in a new file: its newest attempt is shown from then on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tbupload.console.texts import counted, wall_time_text
from tbupload.errors import ServerError
from tbupload.http.client import Client
from tbupload.http.response_schema import Json
from tbupload.logdir.entries import FileEntry
from tbupload.upload.stream_cursors import StreamCursors

RUNS_TOLD_MAX: Final = 5
"""Restarted runs of which one look tells, at most."""

RUNS_WATCHED_MAX: Final = 1_000
"""Runs with several files whose restart is waited for, at most."""

LOOKS_MAX: Final = 10
"""Looks after which a new file has begun no attempt: its first points come in several batches."""


class RestartReport:
    """Reports attempts that began during an upload, each once.

    The server is asked for them only if a file was sent that is not the first one of its run. A
    token that may not read learns nothing.

    Args:
        client: The server.
        experiment_id: The experiment.
        cursors: The files that were uploaded.
        report: Called with a sentence for each restarted run.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: str,
        cursors: StreamCursors,
        report: Callable[[str], None],
    ) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._cursors = cursors
        self._report = report
        self._known: dict[str, int] | None = None
        self._attempts: dict[str, Json] = {}
        self._looks_left: dict[str, int] = {}  # by run that may be restarted
        self._is_expected = False

    def begin(self) -> None:
        """Note the attempts that there are before anything is sent."""
        self._known = {} if self._cursors.is_empty else self._list_newest()

    def note_file(self, entry: FileEntry) -> None:
        """Note that a file is to be sent."""
        run = entry.folder.run
        if entry.committed == 0 and len(self._looks_left) < RUNS_WATCHED_MAX:
            has_others = any(other is not entry for other in entry.folder.files)
            if has_others or self._cursors.has_run(run):
                self._looks_left.setdefault(run, LOOKS_MAX)
        self._is_expected = self._is_expected or run in self._looks_left

    def look(self) -> None:
        """Report the attempts that began since the last look; to be called when all is sent."""
        if not self._is_expected or self._known is None:
            return
        self._is_expected = False
        known, newest = self._known, self._list_newest()
        if newest is None:
            return
        self._known = newest
        self._looks_left = {run: left - 1 for run, left in self._looks_left.items() if left > 1}
        restarted = [run for run, number in newest.items() if number > known.get(run, 1)]
        for run in restarted[:RUNS_TOLD_MAX]:
            self._report(_restart_text(self._attempts[run]))
            self._looks_left.pop(run, None)
        if len(restarted) > RUNS_TOLD_MAX:
            self._report(
                f"restarted as well: {counted(len(restarted) - RUNS_TOLD_MAX, 'more run')}; "
                f"`tbupload show {self._experiment_id}` lists the attempts"
            )

    def _list_newest(self) -> dict[str, int] | None:
        """Return the number of each restarted run's newest attempt; None if it cannot be known."""
        try:
            runs = self._client.list_attempts(self._experiment_id)
        except ServerError:  # the upload reports what concerns it
            return None
        self._attempts = {run["run"]: run for run in runs}
        return {name: run["attempts"][-1]["attempt"] for name, run in self._attempts.items()}


def _restart_text(run: Mapping[str, Any]) -> str:
    earlier, newest = run["attempts"][-2:]
    number = earlier["attempt"]
    return (
        f"run {run['run']!r} was restarted at {wall_time_text(newest['started_at'])}, in a new "
        f"file: this is attempt {newest['attempt']}. It replaces the points of attempt {number} at "
        f"the steps that both have; `tbupload export --attempt {number}` still has them"
    )
