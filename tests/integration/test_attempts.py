"""Attempts of a run: what a restarted job superseded is kept, listed, and read with `attempt`."""

from __future__ import annotations

import pytest

from support.batches import images, scalars, texts
from support.restarted_job import Job


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
