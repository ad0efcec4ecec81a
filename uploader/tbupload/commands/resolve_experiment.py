"""Which experiment an upload goes into: the one that was named, the one this command made before, or a new one."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tbupload.commands.connect import find_experiment_id
from tbupload.console.output import outliving_readers, put_json, put_line
from tbupload.console.progress import Progress
from tbupload.errors import Refused
from tbupload.http.client import Client, Streams
from tbupload.upload.resume_store import Remembered, UploadKey, Uploads, uploads_path

NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Opened:
    """The experiment's streams, and what ends with it: whether this command goes on with it the next time."""

    streams: Streams
    server: str
    uploads: Uploads
    upload: Remembered | None

    def stopped(self) -> None:
        """There is more to come, now or later."""
        if self.upload is not None:
            self.uploads.keep(self.upload)

    def completed(self) -> None:
        """Everything is committed, and nothing more will come."""
        self.uploads.forget(self.server, self.streams.experiment_id)

    @property
    def how_to_resume(self) -> str:
        """What a person types to send the rest."""
        other = f"add --experiment {self.streams.experiment_id}"
        return other if self.upload is None else f"run the same command again (on another machine, {other})"


def open_experiment(client: Client, server: str, options: argparse.Namespace, progress: Progress) -> Opened:
    """Finds or creates the experiment and says at once where it is. Raises ServerError."""
    uploads = Uploads(uploads_path(os.environ), progress.warn)
    if options.experiment is not None:
        streams = client.get_streams(find_experiment_id(options.experiment))
        _put_opened("resumed", streams, options)
        return Opened(streams, server, uploads, None)
    upload = uploads.begin(key_of(server, options), is_new=options.new)
    if upload.experiment_id is not None:
        found = _find_streams(client, upload.experiment_id)
        if found is not None:
            _put_opened("resumed", found, options)
            progress.say(
                f"going on with experiment {found.experiment_id}, last run {_moment(upload)}; --new starts another"
            )
            return Opened(found, server, uploads, upload)
        progress.warn(f"experiment {upload.experiment_id}, which this upload made before, is gone: making another one")
        upload = uploads.begin(key_of(server, options), instead_of=upload)
    return _create(client, server, uploads, upload, options, progress)


def _create(
    client: Client,
    server: str,
    uploads: Uploads,
    upload: Remembered,
    options: argparse.Namespace,
    progress: Progress,
) -> Opened:
    choice = upload.choice
    created = client.create_experiment(
        name=choice["name"],
        description=choice["description"],
        visibility=choice["visibility"],
        request_key=upload.request_key,
    )
    upload = replace(upload, experiment_id=created["experiment_id"], url=created["url"])
    uploads.keep(upload)
    streams = client.get_streams(created["experiment_id"])
    _put_opened("created", streams, options)
    if choice["visibility"] == "private":
        progress.say(f"only you can see it; for a link that others can open: tbupload share {streams.experiment_id}")
    return Opened(streams, server, uploads, upload)


def key_of(server: str, options: argparse.Namespace) -> UploadKey:
    """What makes this command the same as an earlier one."""
    choice: dict[str, Any] = {
        "name": options.name or "",
        "description": options.description or "",
        "visibility": options.visibility or "private",
        "plugins": None if options.plugins is None else sorted(options.plugins),
    }
    for name in ("include_runs", "exclude_runs", "include_tags", "exclude_tags"):
        pattern = getattr(options, name)
        choice[name] = None if pattern is None else pattern.pattern
    return UploadKey(server, _text(options.logdir.expanduser()), choice)


def _text(logdir: Path) -> str:
    """The logdir's absolute path without links, as text whatever its bytes."""
    return os.fsencode(logdir.resolve()).decode("utf-8", "backslashreplace")


def _find_streams(client: Client, experiment_id: str) -> Streams | None:
    try:
        return client.get_streams(experiment_id)
    except Refused as refusal:
        if refusal.status != NOT_FOUND:
            raise
        return None


def _moment(upload: Remembered) -> str:
    return f"{upload.at.replace('T', ' ').partition('+')[0]} UTC"


def _put_opened(event: str, streams: Streams, options: argparse.Namespace) -> None:
    with outliving_readers():
        if options.json:
            put_json({"event": event, "experiment_id": streams.experiment_id, "url": streams.url})
        else:
            put_line(streams.url)
