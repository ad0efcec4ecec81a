"""Upload the system metrics of this machine, beside the upload of a log directory.

They go the same way, from an event file in a temporary directory: an upload of that directory to
the same experiment, in a thread.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tbupload.console.progress import ConsoleProgress
from tbupload.errors import UploadError
from tbupload.events.filters import SeriesFilter
from tbupload.export.event_records import record, version_record
from tbupload.http.cancellation import StopToken
from tbupload.http.client import Client, ExperimentStreams
from tbupload.recording.metrics_options import SECONDS_MAX, SECONDS_MIN, TAG_PREFIX, run_name
from tbupload.recording.nvidia_smi import NvidiaSmi
from tbupload.remote_files import is_local_directory
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.session import Upload, UploadOptions
from tbwire import tensorboard_pb2 as pb

LAST_MEASUREMENT_SECONDS_MAX: Final = 6.0
"""How long the end of the upload waits for the last measurement."""

_DESCRIPTION: Final = (
    "Measured by tbupload on the machine of the upload. Steps are seconds since its start."
)


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
        self._writer = _MetricsWriter(
            _Machine(logdir if is_local_directory(logdir) else Path()),
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
        new = replace(streams, cursors=())  # a new run: nothing of it is sent
        guard = RetrainingGuard(self._client, new, series_filter, is_active=False)
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


class _Machine:
    """Measures this machine; rates are means since the measurement before.

    Args:
        directory: On the file system whose use is measured.
    """

    def __init__(self, directory: Path) -> None:
        self._psutil: Any = importlib.import_module("psutil")  # an extra
        self._directory = directory
        self._gpus = NvidiaSmi()
        self._before: dict[str, float] = {}
        self._measured_at = 0.0
        self.measure()  # rates need a first one

    def measure(self) -> dict[str, float]:
        """Return values by name; what the system does not tell is left out."""
        now = time.monotonic()
        measured: dict[str, float] = {}
        totals: dict[str, float] = {}
        for read in (self._read_cpus, self._read_memory, self._read_disk):
            with contextlib.suppress(OSError, RuntimeError, AttributeError, self._psutil.Error):
                measured.update(read())
        for read in (self._read_disk_bytes, self._read_network_bytes):
            with contextlib.suppress(OSError, RuntimeError, AttributeError, self._psutil.Error):
                totals.update(read())
        seconds = now - self._measured_at
        for name, total in totals.items():
            if name in self._before and seconds > 0 and total >= self._before[name]:
                measured[f"{name}_per_second"] = (total - self._before[name]) / seconds
        self._before, self._measured_at = totals, now
        if self._gpus.is_usable:
            measured.update(self._gpus.measure())
        return measured

    def _read_cpus(self) -> dict[str, float]:
        return {"cpu_percent": self._psutil.cpu_percent()}

    def _read_memory(self) -> dict[str, float]:
        memory = self._psutil.virtual_memory()
        used = memory.total - memory.available
        return {"memory_used_bytes": used, "memory_percent": memory.percent}

    def _read_disk(self) -> dict[str, float]:
        return {"disk_used_percent": self._psutil.disk_usage(str(self._directory)).percent}

    def _read_disk_bytes(self) -> dict[str, float]:
        disks = self._psutil.disk_io_counters()  # None in some containers
        return {"disk_read_bytes": disks.read_bytes, "disk_written_bytes": disks.write_bytes}

    def _read_network_bytes(self) -> dict[str, float]:
        network = self._psutil.net_io_counters()
        return {
            "network_received_bytes": network.bytes_recv,
            "network_sent_bytes": network.bytes_sent,
        }


class _MetricsWriter:
    """Writes measurements to an event file of one run, in a thread, until it is closed.

    Args:
        machine: Sources of the measurements.
        logdir: Where to create the run's directory.
        run: The name of the run.
        seconds: Interval of the measurements.
    """

    def __init__(self, machine: _Machine, logdir: Path, run: str, seconds: float) -> None:
        self._machine = machine
        self._seconds = min(max(seconds, SECONDS_MIN), SECONDS_MAX)
        self._started_at = time.time()
        self._described: set[str] = set()
        self._closing = threading.Event()
        directory = logdir / run
        directory.mkdir(parents=True)
        self._file = (directory / f"events.out.tfevents.{int(self._started_at)}.tbupload").open(
            "wb"
        )
        self._file.write(version_record(self._started_at))
        self._file.flush()
        self._thread = threading.Thread(target=self._run, name="system metrics", daemon=True)
        self._thread.start()

    def close(self, seconds_max: float) -> None:
        """Write a last measurement, and end; wait for that at most for this time."""
        self._closing.set()
        self._thread.join(seconds_max)

    def _run(self) -> None:
        began = time.monotonic()
        with self._file, contextlib.suppress(OSError):  # a full disk
            while not self._closing.wait(self._seconds):
                self._write(int(time.monotonic() - began))
            self._write(int(time.monotonic() - began) + 1)  # a step after the one before

    def _write(self, step: int) -> None:
        event = pb.Event(wall_time=time.time(), step=step)
        event.summary.value.extend(self._make_values(self._machine.measure()))
        self._file.write(record(event.SerializeToString()))
        self._file.flush()

    def _make_values(self, measured: Mapping[str, float]) -> Iterator[Any]:
        for name, number in measured.items():
            value = pb.Summary.Value(tag=f"{TAG_PREFIX}{name}", simple_value=number)
            if name not in self._described:
                self._described.add(name)
                value.metadata.plugin_data.plugin_name = "scalars"
                value.metadata.summary_description = _DESCRIPTION
            yield value
