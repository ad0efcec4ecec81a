"""Records of `tbupload upload` beside the data: the upload itself, and system metrics."""

from __future__ import annotations

import argparse
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

from tbupload.commands.connect import transport_from_access
from tbupload.commands.uploading.process_watch import process_started_at
from tbupload.config import Access
from tbupload.console.progress import ConsoleProgress
from tbupload.http.cancellation import StopToken
from tbupload.http.client import Client, ExperimentStreams
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport
from tbupload.recording.announcement import announce
from tbupload.recording.metrics_options import require_psutil
from tbupload.recording.metrics_upload import MetricsUpload
from tbupload.recording.opt_out import records_nothing
from tbupload.recording.origin import Training
from tbupload.recording.recorder import Recorder, Recording
from tbupload.recording.script import read_script

RETRY_TIMEOUT_SECONDS: Final = 5.0
"""How long one request of the recorder is repeated; it asks again later."""

LAST_SECONDS_MAX: Final = 10.0
FAILED_SECONDS_MAX: Final = 2.0
"""How long the end of an upload waits until its metrics are sent, and until its status is recorded;
the second is for one that has failed, probably because the server does not answer.
"""

METRICS_RETRY_SECONDS: Final = 86_400.0


def find_training(options: argparse.Namespace) -> Training:
    """Return what is known of the process that writes the files."""
    script = read_script(os.environ) if options.commands_from_stdin else None
    return Training(script, options.end_with_process)


def check_recording(options: argparse.Namespace) -> None:
    """Set `no_origin` if environment or config file say so. Raise UsageError without psutil."""
    options.no_origin = records_nothing(os.environ, no_origin=options.no_origin)
    if options.system_metrics is not None:
        require_psutil()


def describe_recording(options: argparse.Namespace, logdir: Path) -> dict[str, Any]:
    """Return all that an upload would record, for a dry run; empty if that is nothing."""
    if options.no_origin:
        return {}
    return _make_recording(options, find_training(options), logdir).describe()


def recording_lines(description: dict[str, Any]) -> list[str]:
    """Return what would be recorded in lines, one per field."""
    if not description:
        return ["would record nothing of where it comes from"]
    fields = {**description["origin"], "start": description["started_at"]}
    packages = description["packages"]
    if packages:
        fields["packages"] = f"{len(packages):,}: {', '.join(packages)}"
    subject = description["status_of"]
    return [
        "would record where it comes from (--no-origin records nothing):",
        *(f"  {name}: {value}" for name, value in fields.items()),
        f"  end and status of the {subject}, when it ends",
        "  of a script that calls tbupload.follow also: python, packages",
    ]


class UploadRecording:
    """Recording of one command; `recorder` is None if nothing is recorded."""

    def __init__(
        self, options: argparse.Namespace, logdir: Path, access: Access, progress: ConsoleProgress
    ) -> None:
        self.recorder: Recorder | None = None
        self._recording = _make_recording(options, find_training(options), logdir)
        self._options = options
        self._progress = progress
        self._metrics: MetricsUpload | None = None
        self._access = access
        self._logdir = logdir
        if not options.no_origin:
            transport = Transport(
                access.server,
                access.token,
                options.cacert,
                RetryPolicy(RETRY_TIMEOUT_SECONDS),
                progress.debug,
            )
            self.recorder = Recorder(Client(transport), self._recording, progress.debug)

    def find_origin(self) -> dict[str, str]:
        """Return the origin of an experiment that is created now; empty if it has none."""
        return {} if self.recorder is None else self._recording.origin

    def announce(self) -> None:
        """Say what is recorded, unless that was said before on this machine."""
        if self.recorder is not None and self._progress.shows_info:
            training = self._recording.training
            announce(
                self._progress.info,
                is_script=training.script is not None,
                is_training=training.is_known,
            )

    def start(self, streams: ExperimentStreams) -> None:
        """Record what is uploaded to this experiment from now on."""
        if self.recorder is not None:
            self.recorder.start(streams.experiment_id)
        if self._options.system_metrics is None:
            return
        if self._metrics is not None:
            self._end_metrics()
        stop_token = StopToken()
        policy = RetryPolicy(METRICS_RETRY_SECONDS, stop_token)
        client = Client(transport_from_access(self._access, self._options, policy, self._progress))
        upload_id = secrets.token_hex(8) if self.recorder is None else self.recorder.upload_id
        self._metrics = MetricsUpload(
            client, stop_token, self._logdir, upload_id, self._options.system_metrics
        )
        self._metrics.start(streams)

    def close(self, *, is_complete: bool) -> bool:
        """End with the upload; return whether all metrics were sent."""
        seconds = LAST_SECONDS_MAX if is_complete else FAILED_SECONDS_MAX
        is_sent = self._end_metrics(seconds)
        if self.recorder is not None:
            self.recorder.close(seconds, is_complete=is_complete)
        return is_sent

    def _end_metrics(self, seconds: float = LAST_SECONDS_MAX) -> bool:
        metrics, self._metrics = self._metrics, None
        problem = None if metrics is None else metrics.close(seconds)
        if problem is not None:
            self._progress.warn(problem)
        return problem is None


def _make_recording(options: argparse.Namespace, training: Training, logdir: Path) -> Recording:
    started_at = time.time()
    if training.script is not None:
        started_at = training.script.started_at
    elif options.end_with_process is not None:
        started_at = process_started_at(options.end_with_process) or started_at
    return Recording(training, logdir, started_at, options.git_diff)
