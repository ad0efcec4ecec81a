"""Select or create the experiment of an upload."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.expiry import experiment_expiry_field
from tbupload.console.output import ignore_broken_pipe, print_result
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import runs_text
from tbupload.errors import Refused, UsageError
from tbupload.experiment_names import name_of_logdir
from tbupload.http.client import Client, ExperimentStreams
from tbupload.logdir.scan import scan_logdir
from tbupload.upload.resume_store import ResumeRecord, ResumeStore, UploadKey, uploads_path
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.session import UploadOptions

NOT_FOUND: Final = 404


@dataclass(frozen=True)
class Target:
    """The experiment to upload to, and its record in the resume store.

    `guard` has its upload cursors. `resume_record` is None if the experiment was named by an
    option. `is_resumed` is False for an experiment that this command has just created.
    `resume_advice` says how the user can send the rest.
    """

    streams: ExperimentStreams
    guard: RetrainingGuard
    resume_store: ResumeStore
    resume_record: ResumeRecord | None
    is_resumed: bool
    resume_advice: str

    def save(self) -> None:
        """Save the record, so that the same command resumes this experiment."""
        if self.resume_record is not None:
            self.resume_store.save(self.resume_record)


class TargetResolver:
    """Selects or creates the experiment of one command.

    Args:
        client: The server.
        server: Its address.
        options: The command's options.
        upload_options: Files that are uploaded.
        find_origin: Returns the origin of a new experiment; empty if it has none.
        progress: Where to say what was chosen.
    """

    def __init__(
        self,
        client: Client,
        server: str,
        options: argparse.Namespace,
        upload_options: UploadOptions,
        find_origin: Callable[[], dict[str, str]],
        progress: ConsoleProgress,
    ) -> None:
        self._client = client
        self._find_origin = find_origin
        self._options = options
        self._upload_options = upload_options
        self._progress = progress
        self._key = upload_key(server, options)
        self._resume_store = ResumeStore(uploads_path(os.environ), progress.warn)

    def resolve(self) -> Target:
        """Find or create the experiment, and print its URL.

        It is the one of `--experiment` or `--experiment-name`; else the one that the same command
        created earlier on this machine, unless `--resume` says otherwise, that experiment was
        deleted, or a run of it was trained again; else a new one.

        Raises:
            ServerError: The server refuses, or cannot be reached.
            UsageError: There is nothing to resume, with `--resume must`.
        """
        if self._options.experiment is not None:
            experiment_id = resolve_experiment_id(self._options.experiment, self._client)
            return self._resume(self._client.get_streams(experiment_id), None)
        if self._options.experiment_name is not None:
            return self._resolve_named(self._options.experiment_name)

        record = self._find_record()
        if record.experiment_id is None:
            return self._create(record)
        existing = _find_streams(self._client, record.experiment_id)
        if existing is not None:
            return self._resume(existing, record)

        gone = f"experiment {record.experiment_id}, which this command created earlier, was deleted"
        if self._options.resume == "must":
            raise UsageError(f"{gone}, and --resume must creates no other one")
        self._progress.warn(f"{gone}: creating another one")
        return self._create(self._resume_store.find_or_create(self._key, replaced=record))

    def resolve_retrained(self, target: Target, run: str) -> Target:
        """Return where to upload a run to that was trained again, and say so.

        That is a new experiment. It is the same one if that was named, or `--resume` says so.
        """
        record = target.resume_record
        experiment_id, url = target.streams.experiment_id, target.streams.url
        facts = (
            f"run {run!r} was trained again: none of its uploaded files is there any more, "
            "and a new one begins at steps that are stored"
        )
        if record is None or self._options.resume in {"must", "allow"}:
            advice = "; --resume never creates another experiment instead" if record else ""
            self._progress.warn(
                f"{facts}. Its points are added to those of the earlier training, which they "
                f"replace at the same steps{advice}"
            )
            streams = self._client.get_streams(experiment_id)
            series_filter = self._upload_options.series_filter
            guard = RetrainingGuard(self._client, streams, series_filter, is_active=False)
            return replace(target, guard=guard)

        self._progress.warn(
            f"{facts}. Creating another experiment for it; the earlier one stays as it is: {url} "
            "(--resume allow would add to it)"
        )
        target = self._create(self._resume_store.find_or_create(self._key, replaced=record))
        self._progress.warn(f"from now on, this upload goes to {target.streams.url}")
        return target

    def _resolve_named(self, name: str) -> Target:
        """Return the experiment of this name, and create it if there is none."""
        fields = self._key.choice
        experiment, is_new = self._client.get_or_create_experiment(
            name=name,
            description=fields["description"],
            visibility=fields["visibility"],
            metadata=self._find_metadata(),
        )
        streams = self._client.get_streams(experiment["experiment_id"])
        if is_new:
            return self._created(streams, None, fields["visibility"])
        self._progress.info(f"experiment {name!r} exists: uploading to it")
        return self._resume(streams, None)

    def _find_record(self) -> ResumeRecord:
        """Return the record of this command; a new one has no experiment. Raise UsageError."""
        if self._options.resume == "must":
            record = self._resume_store.find(self._key)
            if record is None:
                raise UsageError(
                    "--resume must: this command has not uploaded this directory with these "
                    "options from this machine before; --experiment ID names an experiment"
                )
            return record
        is_new = self._options.new or self._options.resume == "never"
        return self._resume_store.find_or_create(self._key, is_new=is_new)

    def _resume(self, streams: ExperimentStreams, record: ResumeRecord | None) -> Target:
        if self._options.upload_deleted_runs:
            self._allow_deleted_runs(streams)
        target = self._target(streams, record, is_resumed=True)
        logdir = self._upload_options.logdir
        retrained = target.guard.find_retrained(logdir) if logdir.is_dir() else None
        if retrained is not None:
            target = self.resolve_retrained(target, retrained)
            if not target.is_resumed:
                return target

        _print_target("resumed", streams, self._options)
        if record is not None:
            self._progress.info(
                f"resuming experiment {streams.experiment_id}, last uploaded "
                f"{_last_run_text(record)}; --new creates another"
            )
        return target

    def _allow_deleted_runs(self, streams: ExperimentStreams) -> None:
        """Let those runs of the log directory be uploaded again that were deleted until now."""
        options = self._upload_options
        if not options.logdir.is_dir():
            return
        scan = scan_logdir(options.logdir, options.series_filter, streams.limits.name_chars_max)
        runs = {file.run for file in scan.files}
        runs.update(folder.run for folder in scan.projector_folders)
        deleted = self._client.find_deleted_runs(streams.experiment_id, runs)
        if deleted:
            self._client.allow_deleted_runs(streams.experiment_id, deleted)
            self._progress.info(f"uploading {runs_text(deleted)} again, deleted on the server")

    def _create(self, record: ResumeRecord) -> Target:
        """Create the experiment of a record; repeating with the same `request_key` is a no-op."""
        fields = record.choice
        created = self._client.create_experiment(
            name=new_name(self._options),
            description=fields["description"],
            visibility=fields["visibility"],
            request_key=record.request_key,
            metadata=self._find_metadata(),
        )
        record = replace(record, experiment_id=created["experiment_id"], url=created["url"])
        self._resume_store.save(record)

        streams = self._client.get_streams(created["experiment_id"])
        if self._options.name is None:
            self._progress.info(f"named {created['name']!r}; --name NAME chooses another name")
        return self._created(streams, record, fields["visibility"])

    def _find_metadata(self) -> dict[str, Any]:
        """Return tags, notes, expiry and origin of a new experiment."""
        metadata: dict[str, Any] = {}
        if self._options.tag:
            metadata["tags"] = self._options.tag
        if self._options.note is not None:
            metadata["notes"] = self._options.note
        if self._options.expires is not None:
            metadata["expires_at"] = experiment_expiry_field(self._options.expires)
        if origin := self._find_origin():
            metadata["origin"] = origin
        return metadata

    def _created(
        self, streams: ExperimentStreams, record: ResumeRecord | None, visibility: str
    ) -> Target:
        """Print the URL of an experiment that was created now."""
        _print_target("created", streams, self._options)
        if visibility == "private":
            self._progress.info(
                "only members of its workspace can read it; to create a link for others: "
                f"tbupload share {streams.experiment_id}"
            )
        return self._target(streams, record, is_resumed=False)

    def _target(
        self, streams: ExperimentStreams, record: ResumeRecord | None, *, is_resumed: bool
    ) -> Target:
        advice = f"add --experiment {streams.experiment_id}"
        if record is not None:
            advice = f"run the same command again (on another machine, {advice})"
        elif self._options.experiment_name is not None:
            advice = "run the same command again, on any machine"
        guard = RetrainingGuard(self._client, streams, self._upload_options.series_filter)
        return Target(streams, guard, self._resume_store, record, is_resumed, advice)


def new_name(options: argparse.Namespace) -> str:
    """Return the name of a new experiment.

    That of the log directory is not part of the key, so that it does not matter for resuming.
    """
    if options.name is not None:
        return str(options.name)
    return name_of_logdir(options.logdir.expanduser(), is_private=options.no_origin)


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
    content = {"event": event, "experiment_id": streams.experiment_id, "url": streams.url}
    with ignore_broken_pipe():
        print_result(content, streams.url, is_json=options.json)
