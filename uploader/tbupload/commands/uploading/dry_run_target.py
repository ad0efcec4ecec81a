"""Target of an upload, for `--dry-run`: the experiment it would resume, or why it would not.

Nothing is asked of a server unless this command has uploaded before, or an experiment is named.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tbupload.commands.connect import transport_from_access
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.uploading.resolve_experiment import NOT_FOUND, upload_key
from tbupload.config import find_access
from tbupload.console.progress import ConsoleProgress
from tbupload.errors import Refused, ServerError, UsageError
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.upload.resume_store import ResumeStore, uploads_path
from tbupload.upload.retraining import RetrainingGuard

RETRY_SECONDS: Final = 5.0
"""How long a server is tried that does not answer."""


@dataclass(frozen=True)
class PlannedTarget:
    """The experiment that would be resumed, None for a new one; and a sentence about it, or "".

    `retrained_run` is a run of an earlier upload that was trained again.
    """

    experiment_id: str | None = None
    retrained_run: str | None = None
    sentence: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the "done" event of `--json`."""
        return {"experiment_id": self.experiment_id, "retrained_run": self.retrained_run}


def plan_target(
    options: argparse.Namespace,
    logdir: Path,
    series_filter: SeriesFilter,
    progress: ConsoleProgress,
) -> PlannedTarget:
    """Return where an upload with these options would go. Raises UsageError as that would."""
    if options.new or options.resume == "never" or options.experiment_name is not None:
        return PlannedTarget()
    try:
        access = find_access(options.server, os.environ, profile=options.profile)
    except UsageError:
        if options.experiment is not None:
            raise
        return PlannedTarget()
    retry_policy = RetryPolicy(RETRY_SECONDS)
    client = Client(transport_from_access(access, options, retry_policy, progress))
    experiment_id = None
    try:
        if options.experiment is not None:
            experiment_id = resolve_experiment_id(options.experiment, client)
        else:
            store = ResumeStore(uploads_path(os.environ), progress.debug)
            record = store.find(upload_key(access.server, options))
            experiment_id = None if record is None else record.experiment_id
        if experiment_id is None:
            return PlannedTarget()
        return _plan(client, experiment_id, options, logdir, series_filter)
    except ServerError as error:
        if isinstance(error, Refused) and error.status == NOT_FOUND and experiment_id is not None:
            sentence = f"there is no experiment {experiment_id}, or this token may not write to it"
            if options.experiment is None:
                sentence = (
                    f"experiment {experiment_id}, to which this was uploaded, was deleted: would "
                    "create another one"
                )
                experiment_id = None
        else:
            sentence = f"would resume an experiment, but the server cannot be asked: {error}"
        return PlannedTarget(experiment_id, sentence=sentence)


def _plan(
    client: Client,
    experiment_id: str,
    options: argparse.Namespace,
    logdir: Path,
    series_filter: SeriesFilter,
) -> PlannedTarget:
    streams = client.get_streams(experiment_id)
    run = RetrainingGuard(client, streams, series_filter).find_retrained(logdir)
    if run is None:
        sentence = f"would add what is new of that to experiment {experiment_id}: {streams.url}"
        return PlannedTarget(experiment_id, sentence=sentence)
    facts = f"run {run!r} was trained again since it was uploaded to experiment {experiment_id}"
    if options.experiment is not None or options.resume in {"must", "allow"}:
        sentence = f"{facts}: would add its points there, which replace the earlier ones"
        return PlannedTarget(experiment_id, run, sentence)
    sentence = f"{facts}: would create another experiment (--resume allow would add to that one)"
    return PlannedTarget(None, run, sentence)
