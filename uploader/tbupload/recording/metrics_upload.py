"""Upload the system metrics of this machine, beside the upload of a log directory.

They go the same way, from an event file in a temporary directory: an upload of that directory to
the same experiment, in a thread.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

from tbupload.console.progress import ConsoleProgress
from tbupload.errors import UploadError
from tbupload.events.filters import SeriesFilter
from tbupload.http.cancellation import StopToken
from tbupload.http.client import Client, ExperimentStreams
from tbupload.recording.metrics_options import run_name
from tbupload.recording.system_metrics import Machine, MetricsWriter
from tbupload.remote_files import is_local_directory
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.session import Upload, UploadOptions
from tbupload.upload.stream_cursors import StreamCursors

LAST_MEASUREMENT_SECONDS_MAX: Final = 6.0
"""How long the end of the upload waits for the last measurement."""


class MetricsUpload:
    """Measures this machine and uploads that, until it is closed.

    Args:
        client: The server; with the stop token in its retry policy.
        stop_token: Ends this upload.
        logdir: The log directory, the use of whose file system is measured.
        upload_id: Names the run.
        seconds: Interval of the measurements.
    """

    def __init__(
        self, client: Client, stop_token: StopToken, logdir: Path, upload_id: str, seconds: float
    ) -> None:
        self._client = client
        self._stop_token = stop_token
        self._seconds = seconds
        self._directory = Path(tempfile.mkdtemp(prefix="tbupload-"))
        self._writer = MetricsWriter(
            Machine(logdir if is_local_directory(logdir) else Path()),
            self._directory,
            run_name(upload_id),
            seconds,
        )
        self._problem: str | None = None
        self._thread: threading.Thread | None = None

    def start(self, streams: ExperimentStreams) -> None:
        """Upload to this experiment from now on."""
        self._thread = threading.Thread(
            target=self._run, args=(streams,), name="upload of system metrics", daemon=True
        )
        self._thread.start()

    def close(self, seconds: float) -> str | None:
        """Send the rest within this time; return a sentence if something was not sent."""
        self._writer.close(LAST_MEASUREMENT_SECONDS_MAX)
        self._stop_token.stop(seconds)
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._problem = "the server did not answer in time"
        with contextlib.suppress(OSError):
            shutil.rmtree(self._directory)
        return (
            None if self._problem is None else f"system metrics were not all sent: {self._problem}"
        )

    def _run(self, streams: ExperimentStreams) -> None:
        progress = ConsoleProgress(-1)
        series_filter = SeriesFilter()
        read_options = ReadOptions(
            series_filter, streams.limits, is_final=False, warn=progress.warn
        )
        cursors = StreamCursors(series_filter.digest(), [])  # a new run: nothing of it is sent
        guard = RetrainingGuard(self._client, streams.experiment_id, cursors, read_options)
        guard.is_active = False
        options = UploadOptions(
            self._directory, series_filter, is_one_shot=False, poll_seconds=self._seconds
        )
        session = Upload(self._client, streams, guard, options, progress, self._stop_token)
        try:
            summary = session.run()
            if not summary.is_complete:
                self._problem = "; ".join(summary.problems) or "values were skipped"
        except UploadError as error:
            self._problem = str(error)
