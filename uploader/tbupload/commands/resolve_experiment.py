"""Select or create the experiment of an upload."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tbupload.commands.connect import find_experiment_id
from tbupload.console.output import ignore_broken_pipe, print_json, print_line
from tbupload.console.progress import ConsoleProgress
from tbupload.errors import Refused
from tbupload.http.client import Client, ExperimentStreams
from tbupload.upload.resume_store import ResumeRecord, ResumeStore, UploadKey, uploads_path

NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Target:
    """The experiment to upload to, and its record in the resume store.

    `resume_record` is None if the experiment was named with `--experiment`.
    """

    streams: ExperimentStreams
    server: str
    resume_store: ResumeStore
    resume_record: ResumeRecord | None

    def mark_stopped(self) -> None:
        """Save the record, so that the same command resumes this experiment."""
        if self.resume_record is not None:
            self.resume_store.save(self.resume_record)

    def mark_completed(self) -> None:
        """Remove the record: the same command creates another experiment."""
        self.resume_store.remove(self.server, self.streams.experiment_id)

    @property
    def resume_advice(self) -> str:
        """Say how the user can send the rest."""
        advice = f"add --experiment {self.streams.experiment_id}"
        if self.resume_record is not None:
            advice = f"run the same command again (on another machine, {advice})"
        return advice


def resolve_experiment(
    client: Client, server: str, options: argparse.Namespace, progress: ConsoleProgress
) -> Target:
    """Find or create the experiment, and print its URL at once. Raise ServerError.

    It is the one of `--experiment`; else the one that the same command created earlier on this
    machine, unless `--new` is given or that experiment was deleted; else a new one.
    """
    resume_store = ResumeStore(uploads_path(os.environ), progress.warn)
    if options.experiment is not None:
        streams = client.get_streams(find_experiment_id(options.experiment))
        _print_target("resumed", streams, options)
        return Target(streams, server, resume_store, None)

    resume_record = resume_store.find_or_create(upload_key(server, options), is_new=options.new)
    if resume_record.experiment_id is not None:
        existing = _find_streams(client, resume_record.experiment_id)
        if existing is not None:
            _print_target("resumed", existing, options)
            progress.info(
                f"resuming experiment {existing.experiment_id}, last uploaded "
                f"{_last_run_text(resume_record)}; --new creates another"
            )
            return Target(existing, server, resume_store, resume_record)
        progress.warn(
            f"experiment {resume_record.experiment_id}, which this command created earlier, "
            "was deleted: creating another one"
        )
        resume_record = resume_store.find_or_create(
            upload_key(server, options), replaced=resume_record
        )

    return _create(client, server, resume_store, resume_record, options, progress)


def _create(
    client: Client,
    server: str,
    resume_store: ResumeStore,
    resume_record: ResumeRecord,
    options: argparse.Namespace,
    progress: ConsoleProgress,
) -> Target:
    """Create the experiment of a record; repeating with the same `request_key` is a no-op."""
    fields = resume_record.choice
    created = client.create_experiment(
        name=fields["name"],
        description=fields["description"],
        visibility=fields["visibility"],
        request_key=resume_record.request_key,
    )
    resume_record = replace(
        resume_record, experiment_id=created["experiment_id"], url=created["url"]
    )
    resume_store.save(resume_record)

    streams = client.get_streams(created["experiment_id"])
    _print_target("created", streams, options)
    if fields["visibility"] == "private":
        progress.info(
            "only you can read it; to create a link for others: "
            f"tbupload share {streams.experiment_id}"
        )
    return Target(streams, server, resume_store, resume_record)


def upload_key(server: str, options: argparse.Namespace) -> UploadKey:
    """Return the options by which a later command is recognized as the same upload."""
    fields: dict[str, Any] = {
        "name": options.name or "",
        "description": options.description or "",
        "visibility": options.visibility or "private",
        "plugins": None if options.plugins is None else sorted(options.plugins),
    }
    for name in ("include_runs", "exclude_runs", "include_tags", "exclude_tags"):
        pattern = getattr(options, name)
        fields[name] = None if pattern is None else pattern.pattern
    return UploadKey(server, _logdir_text(options.logdir.expanduser()), fields)


def _logdir_text(logdir: Path) -> str:
    """Return the absolute path with symbolic links resolved; undecodable bytes are escaped."""
    return os.fsencode(logdir.resolve()).decode("utf-8", "backslashreplace")


def _find_streams(client: Client, experiment_id: str) -> ExperimentStreams | None:
    try:
        return client.get_streams(experiment_id)
    except Refused as refusal:
        if refusal.status != NOT_FOUND:
            raise
        return None


def _last_run_text(upload: ResumeRecord) -> str:
    return f"{upload.at.replace('T', ' ').partition('+')[0]} UTC"


def _print_target(event: str, streams: ExperimentStreams, options: argparse.Namespace) -> None:
    with ignore_broken_pipe():
        if options.json:
            print_json({"event": event, "experiment_id": streams.experiment_id, "url": streams.url})
        else:
            print_line(streams.url)
