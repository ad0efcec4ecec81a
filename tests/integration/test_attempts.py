"""Attempts of a run: what a restarted job superseded is kept, listed, and read with `attempt`."""

from __future__ import annotations

import pytest

from support.batches import images, scalars, segment, stream, texts
from tbservice.scalars import compaction
from tbservice.store import runs_tags
from tbservice.types import AppendGrant


class Job:
    """A training job of one run that writes event files and restarts."""

    def __init__(self, api, experiment, database, workspace_id, run="train"):
        self.api, self.experiment, self.run = api, experiment, run
        self.database, self.workspace_id = database, workspace_id
        self.offsets = {}

    def write(self, file_name, started_at, *series):
        """Send one batch of a file that began at a wall time."""
        start = self.offsets.get(file_name, 0)
        self.offsets[file_name] = start + 1
        of = stream(self.run, file_name)
        start_time = started_at if start == 0 else 0.0
        sent = segment(of, start, start + 1, *series, start_time=start_time)
        self.api.write(self.experiment, sent)

    def compact(self):
        """Compact until nothing is left to compact."""
        grant = AppendGrant(self.workspace_id, self.experiment)
        with self.database.transaction(self.workspace_id) as db:
            run_id = runs_tags.resolve_runs(db, grant, [self.run])[self.run]
            while compaction.compact_run(db, grant, run_id, compact_idle=True).series:
                pass

    def attempts(self):
        """Return (number, start, superseded points) of each attempt of the run."""
        runs = self.api.get(self.experiment, "attempts")["runs"]
        return [
            (a["attempt"], a["started_at"], a["superseded_points"])
            for run in runs
            if run["run"] == self.run
            for a in run["attempts"]
        ]

    def read(self, kind, tag, **query):
        """Return {step: value} of one series; the bytes of a blob, its digest."""
        columns = self.api.get(self.experiment, f"{kind}/data", **query)[self.run][tag]
        values = columns["values"]
        if kind == "blob_sequences":
            values = [[self.blob(blob["key"]) for blob in step] for step in values]
        if kind == "tensors":
            values = [value["data"][0] for value in values]
        assert columns["total"] == columns["kept"] == len(columns["steps"])
        return dict(zip(columns["steps"], values, strict=True))

    def blob(self, key):
        answer = self.api.request("GET", f"/blobs/{key}")
        assert answer.status_code == 200, answer.text
        return answer.content


@pytest.fixture
def job(api, experiment, database, workspace_id):
    return Job(api, experiment, database, workspace_id)


def points(wall_time, steps, name):
    """Return one series of each data class, whose values say which file they are of."""
    steps = list(steps)
    times = [wall_time + step for step in steps]
    return (
        scalars("loss", steps, [wall_time + step / 8 for step in steps], times),
        texts("note", steps, [f"{name}{step}".encode() for step in steps], times),
        images("image", steps, [[f"{name}{step}".encode()] for step in steps], times),
    )


def expected(kind, wall_time, steps, name):
    if kind == "scalars":
        return {step: wall_time + step / 8 for step in steps}
    if kind == "tensors":
        return {step: f"{name}{step}" for step in steps}
    return {step: [f"{name}{step}".encode()] for step in steps}


KINDS = {"scalars": "loss", "tensors": "note", "blob_sequences": "image"}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_attempt_shows_run_as_it_was_before_restart(job, kind, is_compacted):
    job.write("a", 1000.0, *points(1000.0, range(1, 11), "a"))
    job.write("b", 2000.0, *points(2000.0, range(8, 21), "b"))
    job.write("c", 3000.0, *points(3000.0, range(5, 8), "c"))
    if is_compacted:
        job.compact()

    assert job.attempts() == [(1, 1000.0, 18), (2, 2000.0, 0), (3, 3000.0, 0)]
    first = expected(kind, 1000.0, range(1, 11), "a")
    second = first | expected(kind, 2000.0, range(8, 21), "b")
    shown = second | expected(kind, 3000.0, range(5, 8), "c")
    assert job.read(kind, KINDS[kind]) == shown
    for sampling in ("uniform", "all", "linear"):
        assert job.read(kind, KINDS[kind], attempt=1, sampling=sampling) == first
        assert job.read(kind, KINDS[kind], attempt=2, sampling=sampling) == second
        assert job.read(kind, KINDS[kind], attempt=3, sampling=sampling) == shown
