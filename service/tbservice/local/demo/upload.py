"""Upload the demo's log directory with `tbupload`, as users upload theirs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tbservice.local.demo.logdir import write_demo_logdir


class DemoUpload(threading.Thread):
    """A thread that writes the demo's log directory, uploads it and reports its URL.

    A later start resumes the upload to the same experiment.
    """

    def __init__(
        self, directory: Path, server: str, token: str, show: Callable[[str], None]
    ) -> None:
        """Prepare the upload; `start` runs it.

        Args:
            directory: Stores the log directory and the id of its experiment.
            server: URL of the running server.
            token: A token that may create experiments.
            show: Called in the thread with one line: the demo's URL, or that the upload failed.
        """
        super().__init__(name="demo", daemon=True)
        self._logdir = directory / "logdir"
        self._record = directory / "experiment.json"
        self._environment = os.environ | {"TBHUB_SERVER": server, "TBHUB_TOKEN": token}
        self._show = show
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def run(self) -> None:
        """Upload to the experiment of the last start, or to a new one if that was deleted."""
        started = self._resume() if self._record.exists() else None
        if started is None and not self._is_stopped:
            started = self._create()
        if started is not None:
            self._show(f"the demo is at {started['url']}")
        elif not self._is_stopped:
            self._show("the demo could not be uploaded: see the lines above")

    def _resume(self) -> dict[str, str] | None:
        experiment_id = json.loads(self._record.read_text())["experiment_id"]
        return self._upload("--experiment", experiment_id)

    def _create(self) -> dict[str, str] | None:
        shutil.rmtree(self._logdir, ignore_errors=True)
        write_demo_logdir(self._logdir)
        # Visible by link, so that the URL opens without a token: it contains no data of users.
        # --new, because `tbupload` may have a resume record for the files of an interrupted demo.
        started = self._upload("--new", "--name", "Demo: two spirals", "--visibility", "link")
        if started is not None:
            self._record.write_text(json.dumps(started))
        return started

    def stop(self) -> None:
        """Stop the upload; the next start resumes it."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.terminate()

    def _upload(self, *options: str) -> dict[str, str] | None:
        """Run `tbupload` and return its first JSON event, which has the experiment's id and URL.

        Returns None if it was stopped or did not upload everything.
        """
        command = [sys.executable, "-m", "tbupload", "--logdir", str(self._logdir), *options]
        command += ["--one-shot", "--json", "--quiet"]

        with self._lock:
            if self._is_stopped:
                return None
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, text=True
            )
        output, _ = self._process.communicate()
        if self._process.returncode != 0:
            return None
        started: dict[str, str] = json.loads(output.splitlines()[0])
        return started
