"""Sets the hyperparameters of a file for the runs of an upload, each as soon as it is stored."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tbupload.errors import Refused
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client
from tbupload.logdir.entries import Folder
from tbupload.upload.plugins.hparams_file import HparamsFile
from tbwire.hparams import SESSION_START_TAG

POLL_SECONDS_MAX: Final = 0.25
"""Time to set hyperparameters of runs before the upload of data continues."""

_FATAL_STATUSES: Final = frozenset({401, 403, 404, 405})
"""HTTP statuses that concern all runs: the token, the experiment, or a server without the route."""


class HparamsUpload:
    """Sets hyperparameters of runs, at most once each; `count` is the number of runs it changed.

    Args:
        client: The server.
        experiment_id: The experiment.
        file: Hyperparameters to set, by run.
        series_filter: The runs that are uploaded.
        report_problem: Called with a sentence for each run that was refused.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: str,
        file: HparamsFile,
        series_filter: SeriesFilter,
        report_problem: Callable[[str], None],
    ) -> None:
        self.count = 0
        self._client = client
        self._experiment_id = experiment_id
        self._file = file
        self._filter = series_filter
        self._report_problem = report_problem
        self._waiting: dict[Folder, None] = {}
        self._done: set[str] = set()
        self._refusals: list[str] = []
        self._is_refused = False

    def add(self, folder: Folder) -> None:
        """Add a run of which at least one file has nothing more to send for now."""
        run = folder.run
        if run not in self._done and self._file.find(run) is not None:
            self._waiting[folder] = None

    def poll(self, *, is_last: bool = False) -> None:
        """Set the hyperparameters of runs that are stored, for a short time; all with `is_last`.

        A run with more to send waits: it may be about to send hyperparameters of its own. Raises
        Unreachable; what the server refuses is a problem of the run.
        """
        end = time.monotonic() + POLL_SECONDS_MAX
        for folder in list(self._waiting):
            if not is_last and (folder.pending or folder.is_in_flight):
                continue
            if not any(file.committed for file in folder.files):
                continue  # nothing is stored of it yet
            if self._is_refused or (time.monotonic() > end and not is_last):
                return
            del self._waiting[folder]
            self._done.add(folder.run)
            self._set(folder)

    def problems(self) -> list[str]:
        """Return what was refused, and the runs of the file that were not found."""
        if self._is_refused:
            return self._refusals
        return [*self._refusals, *self._file.missing_runs(self._done, self._filter)]

    def _set(self, folder: Folder) -> None:
        hparams, only_if_absent = self._file.find(folder.run), self._file.for_all is not None
        if hparams is None or (only_if_absent and SESSION_START_TAG in folder.tags):
            return
        try:
            is_changed = self._client.set_hparams(
                self._experiment_id, folder.run, hparams, only_if_absent=only_if_absent
            )
            self.count += is_changed
        except Refused as refusal:
            self._is_refused = refusal.status in _FATAL_STATUSES
            sentence = f"{self._file.path}: run {folder.run!r}: {refusal}"
            self._refusals.append(sentence)
            self._report_problem(sentence)
