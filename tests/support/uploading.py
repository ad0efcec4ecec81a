"""Run `tbupload`, read what the server then stores, and what TensorBoard's own reader finds in the
same files.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from support import zygote
from support.servers import http_client
from support.subprocesses import run_to_end
from support.waiting import SECONDS_MAX, wait_until
from tbupload.cli import main


@dataclass(frozen=True)
class Ended:
    """A `tbupload` that has ended."""

    code: int
    out: str
    err: str

    @property
    def experiment_id(self) -> str:
        """The experiment whose URL was printed."""
        return experiment_id_of(self.out)

    @property
    def done(self) -> dict:
        """The last object of `--json`."""
        return json.loads(self.out.splitlines()[-1])


class Following:
    """A running `tbupload`; its output goes to files."""

    def __init__(
        self, process: subprocess.Popen | zygote.ForkedProcess, out: Path, err: Path
    ) -> None:
        self.process = process
        self._out = out
        self._err = err

    def wait_for_experiment(self) -> str:
        """Return the id of the experiment it prints; fails with its stderr if it ends without."""
        return experiment_id_of(wait_until(self._printed))

    def _printed(self) -> str:
        has_ended = self.process.poll() is not None
        printed = self._out.read_text()
        assert printed or not has_ended, self.err()
        return printed

    def out(self) -> str:
        """Return its stdout until now."""
        return self._out.read_text()

    def err(self) -> str:
        """Return its stderr until now."""
        return self._err.read_text()

    def stop(self, number: int = signal.SIGINT) -> Ended:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> Ended:
        """Waits for the end."""
        return Ended(self.process.wait(SECONDS_MAX), self._out.read_text(), self._err.read_text())


@dataclass(frozen=True)
class Uploader:
    """Runs `tbupload` for one server and one token; its configuration and output are in
    `directory`. `python` is what its processes run on.
    """

    server: str
    token: str
    directory: Path
    python: str | Path = sys.executable

    def run(self, *arguments: object, stdin: str = "") -> Ended:
        """Run it to its end within this process: ten times as fast as starting one.

        For the main thread only, because signals, environment and output are the process's.
        """
        with (
            _environment(self.environment()),
            _replaced_stdin(stdin),
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
        ):
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as end:  # wrong usage
                code = end.code
        return Ended(code, out.getvalue(), err.getvalue())

    def run_process(self, *arguments: object, stdin: str = "", is_forked: bool = True) -> Ended:
        """Run it to its end as a process, which `zygote` forks unless it reads from stdin, or is to
        run on another Python.
        """
        if stdin or not is_forked or self.python != sys.executable:
            ended = run_to_end(self._command(arguments), env=self.environment(), input=stdin)
        else:
            ended = zygote.run([*map(str, arguments)], self.environment(), program="tbupload")
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    @contextmanager
    def follow(self, logdir: Path, *arguments: object, is_forked: bool = True):
        """Run it as a process until the block ends; kill it then if it has not ended.

        `zygote` forks it, in a tenth of the processor time, unless it is to run on another Python.
        """
        name = f"following-{time.monotonic_ns()}"
        out, err = self.directory / f"{name}.out", self.directory / f"{name}.err"
        options = [str(each) for each in ("--logdir", logdir, "--poll-seconds", "0.05", *arguments)]
        with out.open("w") as stdout, err.open("w") as stderr:
            if is_forked and self.python == sys.executable:
                files = stdout.fileno(), stderr.fileno()
                process = zygote.fork("tbupload", options, self.environment(), *files)
            else:
                process = subprocess.Popen(
                    self._command(options), env=self.environment(), stdout=stdout, stderr=stderr
                )
        try:
            yield Following(process, out, err)
        finally:
            process.kill()
            process.wait()

    def _command(self, arguments) -> list[str]:
        return [str(self.python), "-m", "tbupload", *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TBHUB_")}
        return kept | {
            "TBHUB_SERVER": self.server,
            "TBHUB_TOKEN": self.token,
            "TBHUB_CONFIG": str(self.directory / "config.toml"),
        }


@contextmanager
def _environment(wanted: dict[str, str]):
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _replaced_stdin(text: str):
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


class Reader:
    """The server's read API with one token."""

    def __init__(self, server: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.http = http_client(server, headers=headers)

    def get(self, experiment_id: str, path: str, **query):
        """Return the JSON of a route below an experiment."""
        answer = self.http.get(f"/api/v1/experiments/{experiment_id}/{path}", params=query)
        answer.raise_for_status()
        return answer.json()

    def experiments(self) -> list[dict]:
        """Return the experiments of the workspace."""
        return self.http.get("/api/v1/experiments").raise_for_status().json()["experiments"]

    def count(self, experiment_id: str, run: str = "run", tag: str = "loss") -> int:
        """Return how many points a scalar series has; 0 while there is none."""
        return self.get(experiment_id, "scalars").get(run, {}).get(tag, {}).get("count", 0)

    def scalars(self, experiment_id: str) -> dict:
        """Return every point: {run: {tag: {step: (wall time, value)}}}."""
        runs = self.get(experiment_id, "scalars/data", downsample=10_000)
        return {
            run: {tag: _points(columns) for tag, columns in tags.items()}
            for run, tags in runs.items()
        }

    def digests(self, experiment_id: str) -> dict[tuple[str, str], dict]:
        """Return the digests of each series by (run, tag)."""
        by_series, after = {}, ""
        while after is not None:
            page = self.get(experiment_id, "digests", after=after)
            for series in page["series"]:
                by_series[series.pop("run"), series.pop("tag")] = series
            after = page["next"]
        return by_series

    def blobs(self, experiment_id: str, run: str, tag: str) -> list[list[bytes]]:
        """Return the bytes of each step's blobs."""
        columns = self.get(experiment_id, "blob_sequences/data", run=run, tag=tag)[run][tag]
        return [
            [self.http.get(f"/api/v1/blobs/{blob['key']}").content for blob in step]
            for step in columns["values"]
        ]


def _points(columns: dict) -> dict:
    values = [float(value) for value in columns["values"]]
    return dict(zip(columns["steps"], zip(columns["wall_times"], values, strict=True), strict=True))


def experiment_id_of(text: str) -> str:
    """Return the id in a printed URL."""
    return text.split("/experiment/")[1].partition("/")[0]


def tensorboard_scalars(logdir: Path) -> dict:
    """Return what TensorBoard's own reader finds: {run: {tag: {step: (wall time, value)}}}, the
    newest point of a step.
    """
    runs: dict = {}
    for path in sorted(logdir.rglob("*tfevents*")):
        run = path.parent.relative_to(logdir).as_posix()
        for tag, step, wall_time, value in _tensorboard_points(path):
            points = runs.setdefault(run, {}).setdefault(tag, {})
            if step not in points or points[step][0] <= wall_time:
                points[step] = (wall_time, value)
    return runs


def _tensorboard_points(path: Path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader  # noqa: PLC0415 - slow to import
    from tensorboard.util.tensor_util import make_ndarray  # noqa: PLC0415

    plugins: dict[str, str] = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            if plugins[value.tag] == "scalars":
                yield (
                    value.tag,
                    event.step,
                    event.wall_time,
                    float(np.float64(make_ndarray(value.tensor).item())),
                )


def lines_without_wait(err: str) -> list[str]:
    """Return the lines of a script's stderr, without what `follow` says of a wait of over 2 s, as on
    a busy machine.
    """
    return [line for line in err.splitlines() if "Ctrl-C ends the wait" not in line]
