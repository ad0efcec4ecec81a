"""The move of one experiment: export, upload, details, comparison, and the old one's deletion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tbupload.commands.moving.comparison import (
    StoredExperiment,
    check_equal,
    check_objects,
    read_stored,
)
from tbupload.commands.moving.details import (
    carry_run_tags,
    carry_uploads,
    read_fields,
    read_run_tags,
)
from tbupload.commands.moving.move_state import MoveState, delete_state, open_state
from tbupload.commands.moving.workspaces import MoveWorkspace
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import counted
from tbupload.errors import QuotaExceeded, Refused, UploadError
from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.export.directory_names import is_renamed, run_directory
from tbupload.export.export_options import EVENTS, ExportOptions
from tbupload.export.exporter import Exporter
from tbupload.export.progress import ExportProgress
from tbupload.http.response_schema import Json
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.session import Upload, UploadOptions

_POLL_SECONDS: Final = 1.0
_NOT_FOUND: Final = 404
_NOTHING: Final = SeriesFilter()


@dataclass(frozen=True)
class Moved:
    """A move that is complete: its new address, and how much was compared, if it was now."""

    experiment_id: str
    copy_id: str
    url: str
    series: int | None = None
    points: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        return {
            "experiment_id": self.experiment_id,
            "new_experiment_id": self.copy_id,
            "url": self.url,
            "series": self.series,
            "points": self.points,
        }


class Mover:
    """Moves experiments from one workspace to another. With `is_kept`, the old ones stay."""

    def __init__(
        self,
        source: MoveWorkspace,
        target: MoveWorkspace,
        progress: ConsoleProgress,
        work_dir: Path | None,
        *,
        is_kept: bool,
    ) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._work_dir = work_dir
        self._is_kept = is_kept

    def move(self, experiment_id: str) -> Moved:
        """Move one experiment, or continue where an earlier command was interrupted.

        Raises:
            ServerError: A server refuses, or cannot be reached; the old one is untouched.
            QuotaExceeded: The other workspace has no room for it.
            OutputError: The files cannot be written.
            UploadError: It is being uploaded to, or the two differ; the old one is untouched.
        """
        with open_state(self._work_dir, self._source, experiment_id, self._target) as state:
            moved = self._continue(experiment_id, state)
            delete_state(state)
        return moved

    def _continue(self, experiment_id: str, state: MoveState) -> Moved:
        try:
            experiment = self.check(experiment_id)
        except Refused as refusal:
            if refusal.status != _NOT_FOUND or not state.is_equal or state.copy_id is None:
                raise
            # Interrupted between the deletion and the end of the command.
            copy = self._target.client.get_experiment(state.copy_id)
            return Moved(experiment_id, state.copy_id, copy["url"])

        state.is_equal = False
        copy = self._open_copy(state, read_fields(experiment))
        copy_id = copy["experiment_id"]
        try:
            self._copy_points(experiment, copy_id, state)
        except QuotaExceeded:
            self._progress.warn(
                f"nothing was deleted: {experiment_id} stays as it is, and {copy['url']} has what "
                "there was room for. With more room, run the same command again"
            )
            raise
        self._carry_details(experiment_id, copy)
        stored = self._compare(experiment_id, copy_id)
        if not self._is_kept:
            self._delete_old(experiment, state)
        return Moved(experiment_id, copy_id, copy["url"], len(stored.series), stored.points)

    def check(self, experiment_id: str) -> Json:
        """Return the fields of an experiment that can be moved.

        Raises UploadError if it is being uploaded to, or has what a copy would not; ServerError.
        """
        experiment = self._source.client.get_experiment(experiment_id, has_details=True)
        if experiment.get("status") == "running":
            raise UploadError(
                f"experiment {experiment_id} is being uploaded to: stop its uploader, or wait "
                "until it has ended, and move it then"
            )
        restarted = [] if self._is_kept else self._source.client.list_attempts(experiment_id)
        if restarted:
            raise UploadError(
                f"experiment {experiment_id} has earlier attempts of "
                f"{counted(len(restarted), 'run')}, which would stay behind and be erased: copy it "
                "with --keep, and delete the old one if they are not needed"
            )
        return experiment

    def _open_copy(self, state: MoveState, fields: dict[str, Any]) -> Json:
        """Return the copy, which is created if it does not exist yet."""
        client = self._target.client
        if state.copy_id is not None:
            try:
                return client.get_experiment(state.copy_id)
            except Refused as refusal:
                if refusal.status != _NOT_FOUND:
                    raise
            state.begin_again()
        metadata = {name: fields[name] for name in ("tags", "notes", "properties", "origin")}
        copy = client.create_experiment(
            name=fields["name"],
            description=fields["description"],
            visibility="private",
            request_key=state.request_key,
            metadata=metadata,
        )
        state.copy_id = copy["experiment_id"]
        state.save()
        return copy

    def _copy_points(self, experiment: Json, copy_id: str, state: MoveState) -> None:
        """Export what there is to files, and upload these."""
        experiment_id = experiment["experiment_id"]
        state.begin_export(_version(experiment))
        transport = self._source.transport
        client = ExportClient(transport, experiment_id)
        options = ExportOptions(transport.server, experiment_id, EVENTS, _NOTHING, state.files)
        self._progress.info(f"{experiment_id}: exporting to {state.files}")
        display = ExportProgress(self._progress, experiment_id)
        try:
            summary = Exporter(client, options, display).run()
        finally:
            display.close()
        if summary.lost_points:
            raise UploadError(
                f"{counted(len(summary.lost_points), 'point')} of {experiment_id} cannot be read: "
                "the server has lost their bytes. `tbupload verify --repair` sends them again from "
                "the log directory"
            )
        if summary.series or summary.was_complete:
            runs = self._source.client.list_runs(experiment_id)
            names = {run_directory(run): run for run in runs if is_renamed(run)}
            self._upload(copy_id, state.files, names)

    def _upload(self, copy_id: str, files: Path, run_names: dict[str, str]) -> None:
        client, progress = self._target.client, self._progress
        streams = client.get_streams(copy_id)
        # Files that were exported again belong to the same copy.
        guard = RetrainingGuard(client, streams, _NOTHING, is_active=False)
        options = UploadOptions(
            files, _NOTHING, True, _POLL_SECONDS, readers=None, run_names=run_names
        )
        progress.info(f"{copy_id}: uploading to {self._target.name or 'the other workspace'}")
        progress.start(streams.url)
        try:
            stop_token = self._target.transport.retry_policy.stop_token
            summary = Upload(client, streams, guard, options, progress, stop_token).run()
        finally:
            progress.close()
        if not summary.is_complete:
            raise UploadError(
                "not everything can be uploaded there: " + "; ".join(summary.lines("sent"))
            )

    def _carry_details(self, experiment_id: str, copy: Json) -> None:
        """Carry what is not points, and compare it. Raises UploadError if something differs."""
        source, target, copy_id = self._source, self._target, copy["experiment_id"]
        carry_uploads(source, experiment_id, target, copy_id)
        tags_of = read_run_tags(source, experiment_id)
        carry_run_tags(target, copy_id, tags_of)
        fields = read_fields(self.check(experiment_id))
        removed = dict.fromkeys(copy.get("properties", {}))
        change = {**fields, "properties": {**removed, **fields["properties"]}}
        copied = read_fields(target.client.update_experiment(copy_id, change))
        names = [name for name, value in fields.items() if copied.get(name) != value]
        if read_run_tags(target, copy_id) != tags_of:
            names.append("tags of runs")
        if names:
            raise UploadError(f"the copy has other {', '.join(names)}; nothing was deleted")

    def _compare(self, experiment_id: str, copy_id: str) -> StoredExperiment:
        """Return what both have. Raises UploadError if points or blobs differ."""
        self._progress.info(f"{experiment_id}: comparing every series")
        stored = read_stored(self._source.client, experiment_id)
        check_equal(stored, read_stored(self._target.client, copy_id))
        check_objects(self._target.client, copy_id, stored.runs)
        return stored

    def _delete_old(self, experiment: Json, state: MoveState) -> None:
        """Put the old one into the trash, unless it has changed since it was compared."""
        experiment_id = experiment["experiment_id"]
        if _version(self.check(experiment_id)) != _version(experiment):
            raise UploadError(
                f"experiment {experiment_id} has changed meanwhile; nothing was deleted: run the "
                "same command again"
            )
        state.is_equal = True
        state.save()
        self._source.client.delete_experiment(experiment_id)


def _version(experiment: Json) -> str:
    """Return a text that changes with everything that is written to an experiment."""
    return f"{experiment['updated_at']} {experiment['points']}"
