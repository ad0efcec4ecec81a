"""Record an upload on the server: once what it is, then that it is there, and how it ended.

All of that happens in a thread: the upload waits for none of it, and fails for none of it.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from tbupload.errors import Refused, Unreachable
from tbupload.http.client import Client
from tbupload.recording.console_tail import LINE_BYTES_MAX, Console, bound_lines, clean_line
from tbupload.recording.exit_status import RUNNING, VANISHED, Ending
from tbupload.recording.masked_text import mask_lines
from tbupload.recording.masking import mask_url
from tbupload.recording.nvidia_smi import NvidiaSmi
from tbupload.recording.origin import (
    GIT_SECONDS_MAX,
    Training,
    clean_values,
    find_directories,
    find_origin,
)

HEARTBEAT_SECONDS: Final = 300.0
"""Interval in which the server is told that the uploader is there."""

RETRY_SECONDS: Final = 30.0
"""Interval of attempts while the server cannot be reached."""

UPLOAD_ID_BYTES: Final = 8

MOVED: Final = {"status": "unknown", "detail": "a run was trained again: see another experiment"}

UNKNOWN_FIELD: Final = 422
"""The status of a server's answer to a field that it does not know."""

STOPPED: Final = Ending("unknown", "the upload was stopped before")

READ_BYTES_MAX: Final = 64 << 10
"""Bytes of the difference that are read: more than is recorded, since lines are shortened."""
_COMMAND: Final = (
    # Neither the repository nor its configuration names a program that is run: no pager, no
    # fsmonitor, no external diff, no text conversion.
    *("git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false"),
    *("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short"),
)

PACKAGES_ITEMS_MAX: Final = 1_000
"""Packages that are listed; a server accepts no more."""
PACKAGES_CHARS_MAX: Final = 32_000
"""Characters of all packages together; a server accepts no more."""
PACKAGE_CHARS_MAX: Final = 500
"""Characters of one package."""


@dataclass(frozen=True)
class Recording:
    """Subject of a recording: which training, found where, since when, with the git diff or not."""

    training: Training
    logdir: Path
    started_at: float
    has_git_diff: bool = False

    @property
    def status_of(self) -> str:
        """Return what start, end and status are about: the training, or the upload alone."""
        return "training" if self.training.is_known else "upload"

    @cached_property
    def origin(self) -> dict[str, str]:
        """Return what is found at once, the same for the experiment and for this upload."""
        return find_origin(self.logdir, self.training)

    def describe(self) -> dict[str, Any]:
        """Return all of it as it is sent; takes a second."""
        script = self.training.script
        return {
            "origin": {**self.origin, **clean_values(NvidiaSmi().describe())},
            "packages": [] if script is None else list_packages(script.path),
            "status_of": self.status_of,
            "started_at": _format(self.started_at),
        }

    def find_git_diff(self) -> str:
        """Return the difference to the git commit; "" if it is not to be recorded.

        Takes seconds.
        """
        if not self.has_git_diff:
            return ""
        return _find_git_diff(find_directories(self.logdir, self.training))


class Recorder:
    """Records one upload at a time; its methods may be called from any thread.

    Args:
        client: The server; its requests must not be retried for long.
        recording: Subject of the recording.
        debug: Called with a sentence if the server does not record it.
    """

    def __init__(self, client: Client, recording: Recording, debug: Callable[[str], None]) -> None:
        self.upload_id = secrets.token_hex(UPLOAD_ID_BYTES)
        self._client = client
        self._recording = recording
        self._debug = debug
        self._changed = threading.Condition()
        self._experiment_id: str | None = None
        self._uploaded_to: str | None = None
        self._end_before: dict[str, Any] | None = None
        self._told_by_script = self._ending = RUNNING
        self._exit: Ending | None = None
        self._ended_at: float | None = None
        self._exited_at = math.inf
        self._told: Ending | None = None
        self._texts: dict[str, Any] = {}
        self._told_texts: dict[str, Any] = {}
        self._ignores_exit = self._is_closing = self._is_over = False
        self._thread: threading.Thread | None = None

    def start(self, experiment_id: str) -> None:
        """Record the upload with this experiment from now on, and with the one before no more.

        A training that has ended stays with the one before: what is uploaded now is of another,
        and is recorded once that is told to be running. That one may have ended since.
        """
        with self._changed:
            self._uploaded_to = experiment_id
            is_of_another = self._ending != RUNNING and self._end_before is None
            if self._experiment_id is None or not is_of_another:
                self._experiment_id = experiment_id
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
            self._thread.start()

    def set_ending(self, ending: Ending, ended_at: float | None = None) -> None:
        """Set the status that the training tells of itself, and since when (epoch seconds): now."""
        with self._changed:
            if ending == RUNNING:  # once more: after a block that was left
                if self._ending != RUNNING:
                    self._end_before = _end_fields(self._ending, self._ended_at)
                self._experiment_id = self._uploaded_to
            self._told_by_script = ending
            self._ended_at = time.time() if ended_at is None else ended_at
            self._update()

    def set_exit(self, ending: Ending | None) -> None:
        """Set how the process of the training ended, None if the system does not tell.

        It counts if the training told nothing, or that all is well while its process failed.
        """
        with self._changed:
            self._exit, self._exited_at = ending or VANISHED, time.time()
            self._update()

    def ignore_exit(self) -> None:
        """Let the process end as it will: this part of its work is over."""
        with self._changed:
            self._ignores_exit = True
            self._update()

    def set_console(self, console: Console) -> None:
        """Set the last lines that the training has printed, secrets masked."""
        if console.text:
            self._set_texts(console=console.text, console_times=console.times)

    def _set_texts(self, **texts: Any) -> None:
        with self._changed:
            self._texts.update(texts)
            self._changed.notify_all()

    @property
    def _has_told_all(self) -> bool:
        return self._told == self._ending and self._told_texts == self._texts

    def _update(self) -> None:
        told, exit_ = self._told_by_script, self._exit
        has_failed = exit_ is not None and exit_.status in {"failed", "killed"}
        counts = told.status == "running" or (told.status == "finished" and has_failed)
        if exit_ is not None and counts and not self._ignores_exit:
            self._ending, self._ended_at = exit_, self._exited_at
        else:
            self._ending = told
        self._changed.notify_all()

    def flush(self, seconds: float) -> None:
        """Wait until the server knows the present status, at most for this time."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_told_all, seconds)

    def close(self, seconds: float, *, is_complete: bool) -> None:
        """End the recording with the upload; wait for that at most for this time.

        `is_complete`: all of the upload was committed.
        """
        if self._thread is None:
            return
        if self._ending.status == "running":
            if self._recording.training.is_known:
                self.set_ending(STOPPED)
            else:
                self.set_ending(Ending("finished" if is_complete else "failed"))
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._record()
        except Refused as refusal:
            self._debug(f"the upload is not recorded any more: {refusal}")
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _record(self) -> None:
        """Tell the server, until the upload ends or the server refuses."""
        description = self._recording.describe()
        if git_diff := self._recording.find_git_diff():
            self._set_texts(git_diff=git_diff)
        recorded_with: str | None = None
        while not (self._is_closing and self._has_told_all):
            try:
                experiment_id = self._experiment_id or ""
                if recorded_with != experiment_id:
                    self._put(recorded_with, experiment_id, description)
                    recorded_with = experiment_id
                else:
                    self._tell(experiment_id)
                pause = HEARTBEAT_SECONDS
            except Unreachable as error:
                self._debug(f"the upload is not recorded yet: {error}")
                if self._is_closing:
                    return
                pause = RETRY_SECONDS
            self._wait(pause, recorded_with)

    def _put(
        self, recorded_with: str | None, experiment_id: str, description: dict[str, Any]
    ) -> None:
        """Record the upload with its experiment; end the record with another one before."""
        if recorded_with is not None:
            self._client.change_upload(recorded_with, self.upload_id, self._end_before or MOVED)
        self._client.put_upload(experiment_id, self.upload_id, description)
        with self._changed:
            self._end_before = None
            self._told = RUNNING
            self._told_texts = {}
            self._changed.notify_all()

    def _tell(self, experiment_id: str) -> None:
        """Say that the uploader is there, and the status and the texts if they have changed."""
        with self._changed:
            ending, ended_at, texts = self._ending, self._ended_at, dict(self._texts)
        if texts != self._told_texts:
            self._tell_texts(experiment_id, texts)
        fields: dict[str, Any] = {}
        if ending != self._told:
            fields = _end_fields(ending, ended_at)
        self._client.change_upload(experiment_id, self.upload_id, fields)
        with self._changed:
            self._told, self._told_texts = ending, texts
            self._changed.notify_all()

    def _tell_texts(self, experiment_id: str, texts: dict[str, Any]) -> None:
        """Record the texts, in a request of their own: an older server does not know them."""
        try:
            self._client.change_upload(experiment_id, self.upload_id, texts)
        except Refused as refusal:
            if refusal.status != UNKNOWN_FIELD:
                raise
            if "console_times" in texts:  # the field that a server has had for the shortest time
                rest = {name: texts[name] for name in texts if name != "console_times"}
                self._tell_texts(experiment_id, rest)
                return
            self._debug(f"the server does not record {' and '.join(texts)}: {refusal}")

    def _wait(self, seconds: float, recorded_with: str | None) -> None:
        def is_due() -> bool:
            is_moved = recorded_with != self._experiment_id
            return self._is_closing or is_moved or not (self._told is None or self._has_told_all)

        with self._changed:
            self._changed.wait_for(is_due, seconds)


def _end_fields(ending: Ending, ended_at: float | None) -> dict[str, Any]:
    """Return a status and its time as they are sent."""
    fields = {"status": ending.status, "detail": ending.detail}
    return fields if ended_at is None else {**fields, "ended_at": _format(ended_at)}


def _format(seconds: float) -> str:
    """Return a time of the clock as RFC 3339; a clock that is far off must not be an error."""
    seconds = seconds if math.isfinite(seconds) else 0.0
    return datetime.fromtimestamp(min(max(seconds, 0.0), 9e10), timezone.utc).isoformat()


def _find_git_diff(directories: Sequence[str]) -> str:
    """Return the difference of tracked files to HEAD in the first directory that has a repository.

    Secrets are masked; "" if there is no difference, no git, or no answer in GIT_SECONDS_MAX.
    """
    for directory in filter(None, dict.fromkeys(directories)):
        difference = _read_diff(directory)
        if difference is not None:
            lines = difference.rstrip(b"\n").split(b"\n")
            cleaned = [clean_line(line[:LINE_BYTES_MAX]) for line in lines]
            return bound_lines(list(mask_lines(cleaned)), is_tail=False)
    return ""


def _read_diff(directory: str) -> bytes | None:
    """Return the beginning of what git prints; None if it fails."""
    try:
        process = subprocess.Popen(
            _COMMAND,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        return None
    timer = threading.Timer(GIT_SECONDS_MAX, process.kill)
    timer.start()
    with process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        content = process.stdout.read(READ_BYTES_MAX)
        if len(content) == READ_BYTES_MAX:  # the rest is not waited for
            process.kill()
    timer.cancel()
    return content if process.returncode == 0 or len(content) == READ_BYTES_MAX else None


def list_packages(path: Sequence[str]) -> list[str]:
    """Return `name==version` of each package that is found on this path, sorted by name.

    One from a repository has its URL without user, password and query, and its commit; one from a
    directory is marked as local. If there are too many, the last entry says how many are left out.
    """
    found: dict[str, str] = {}
    for distribution in metadata.distributions(path=list(path)):
        try:
            name = distribution.metadata["Name"]
            key = re.sub(r"[-_.]+", "-", name).lower()  # PEP 503
            if key not in found:  # the first on the path is the one that is imported
                found[key] = f"{name}=={distribution.version}{_describe_source(distribution)}"
        except Exception:  # noqa: BLE001, S112 - a damaged package, of anybody
            continue
    return list(_bound([found[key][:PACKAGE_CHARS_MAX] for key in sorted(found)]))


def _describe_source(distribution: metadata.Distribution) -> str:
    """Return where it was installed from, by PEP 610, as far as that may be told; "" for PyPI."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return ""
    source = json.loads(text)
    url = str(source.get("url", ""))
    commit = str(source.get("vcs_info", {}).get("commit_id", ""))
    if not commit or url.startswith("file:"):
        return " (local)" if url.startswith("file:") else f" @ {mask_url(url)}"
    vcs = re.sub(r"\W", "", str(source["vcs_info"].get("vcs", "")))
    return f" @ {vcs}+{mask_url(url)}@{re.sub('[^0-9A-Za-z]', '', commit)}"


def _bound(packages: list[str]) -> Iterator[str]:
    room = PACKAGES_CHARS_MAX - 100  # for the last entry
    for number, package in enumerate(packages):
        room -= len(package)
        if room < 0 or number == PACKAGES_ITEMS_MAX - 1:
            yield f"... and {len(packages) - number} more"
            return
        yield package
