"""Uploads the demo's logdir the way people upload theirs: with `tbupload`, to a server that is running."""

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
    """Makes the logdir, uploads it, and tells where to see it. A second time it goes on with the same experiment."""

    def __init__(
        self, directory: Path, server: str, token: str, show: Callable[[str], None]
    ) -> None:
        """`directory` keeps the logdir and which experiment it became; `show` is told the URL, or what went wrong."""
        super().__init__(name="demo", daemon=True)
        self._logdir = directory / "logdir"
        self._kept = directory / "experiment.json"
        self._environment = os.environ | {"TBHUB_SERVER": server, "TBHUB_TOKEN": token}
        self._show = show
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._is_stopped = False

    def run(self) -> None:
        """Uploads to the experiment of last time, or to a new one when there is none any more."""
        seen = self._resume() if self._kept.exists() else None
        if seen is None and not self._is_stopped:
            seen = self._begin()
        if seen is not None:
            self._show(f"the demo is at {seen['url']}")
        elif not self._is_stopped:
            self._show("the demo could not be uploaded: the lines above say why")

    def _resume(self) -> dict[str, str] | None:
        return self._upload("--experiment", json.loads(self._kept.read_text())["experiment_id"])

    def _begin(self) -> dict[str, str] | None:
        shutil.rmtree(self._logdir, ignore_errors=True)
        write_demo_logdir(self._logdir)
        # By link: whoever asks for the demo wants to open it without a token, and there is nothing of theirs in it.
        # New, as its files are: what `tbupload` remembers of one that was stopped had others.
        seen = self._upload("--new", "--name", "Demo: two spirals", "--visibility", "link")
        if seen is not None:
            self._kept.write_text(json.dumps(seen))
        return seen

    def stop(self) -> None:
        """Ends the upload; it can be gone on with another time."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.terminate()

    def _upload(self, *options: str) -> dict[str, str] | None:
        """Runs `tbupload` and returns its first event, which names the experiment; None when not everything arrived."""
        command = [
            sys.executable,
            "-m",
            "tbupload",
            "--logdir",
            str(self._logdir),
            "--one-shot",
            "--json",
            "--quiet",
        ]
        with self._lock:
            if self._is_stopped:
                return None
            self._process = subprocess.Popen(
                [*command, *options], env=self._environment, stdout=subprocess.PIPE, text=True
            )
        printed, _ = self._process.communicate()
        if self._process.returncode != 0:
            return None
        seen: dict[str, str] = json.loads(printed.splitlines()[0])
        return seen
