"""Attempts do not depend on how points arrive, nor on compaction: compared with a plain model."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from support.batches import images, scalars, texts
from support.restarted_job import Job
from tbservice import limits

EXAMPLES = 2
KINDS = {"scalars": "loss", "tensors": "note", "blob_sequences": "image"}


@dataclass
class File:
    """An event file: its name, when it began, and (wall time, step) of its points."""

    name: str
    start: float
    points: list = field(default_factory=list)


@st.composite
def histories(draw, *, at_once):
    """Draw the files of a run, point by point; with `at_once`, older files may go on."""
    files = []
    for tick in range(draw(st.integers(2, 24))):
        time = 1000.0 + tick
        if not files or draw(st.integers(0, 4)) == 0:
            files.append(File(f"events.{len(files)}", time))
        file = draw(st.sampled_from(files)) if at_once else files[-1]
        file.points.append((time + 0.5, draw(st.integers(0, 4))))
    return files


@st.composite
def arrivals(draw, files):
    """Draw the order in which the files' points arrive: a list of batches, None for a compaction.

    A batch is a list of (file, points of one segment).
    """
    rest = [(file, list(file.points)) for file in draw(st.permutations(files))]
    batches = [[]]
    while rest:
        file, points = draw(st.sampled_from(rest))
        count = draw(st.integers(min(1, len(points)), len(points)))
        batches[-1].append((file, points[:count]))
        del points[:count]
        if not points:
            rest = [item for item in rest if item[1]]
        batches += draw(st.sampled_from([[], [[]], [None, []]]))
    return [batch for batch in batches if batch is None or batch]


class Model:
    """The shown points and the attempts, from all points at once."""

    def __init__(self, files):
        self.points = sorted((time, step) for file in files for time, step in file.points)
        self.restarts = [
            file.start
            for file in files
            if any(other.start < file.start for other in files)
            and all(
                time < file.start
                for other in files
                if other.start < file.start
                for time, _ in other.points
            )
        ]
        self.start = min(file.start for file in files)
        periods = {step: set() for _, step in self.points}
        for time, step in self.points:
            periods[step].add(bisect_right(self.restarts, time))
        pairs = [pair for used in periods.values() for pair in pairwise(sorted(used))]
        self.superseded = [period for period, _ in pairs]
        self.first_periods = [0]
        for restart in range(1, len(self.restarts) + 1):
            if any(by == restart and period >= self.first_periods[-1] for period, by in pairs):
                self.first_periods.append(restart)

    def state(self, before=float("inf")):
        """Return {step: wall time} of the points before a time, the newest of each step."""
        return {step: time for time, step in self.points if time < before}

    def attempts(self):
        starts = [self.start, *(self.restarts[period - 1] for period in self.first_periods[1:])]
        ends = [*self.first_periods[1:], len(self.restarts) + 1]
        return [
            (number, start, sum(first <= period < end for period in self.superseded))
            for number, (start, first, end) in enumerate(
                zip(starts, self.first_periods, ends, strict=True), 1
            )
        ]


def series_of(points, width):
    """Return a series of each class; each logged step is `width` steps of the scalar series."""
    if not points:
        return ()
    times = [time for time, _ in points]
    steps = [step for _, step in points]
    spread = [(time, step * width + i) for time, step in points for i in range(width)]
    names = [[f"{time}".encode()] for time in times]
    return (
        scalars("loss", [s for _, s in spread], [t for t, _ in spread], [t for t, _ in spread]),
        texts("note", steps, [name for (name,) in names], times),
        images("image", steps, names, times),
    )


def read_times(job, kind, width, **query):
    """Return {step: wall time} of a series; its values must say the same."""
    shown = job.read(kind, KINDS[kind], **query)
    if kind == "tensors":
        return {step: float(value) for step, value in shown.items()}
    if kind == "blob_sequences":
        return {step: float(value.decode()) for step, (value,) in shown.items()}
    assert all(
        shown.get(step // width * width + i) == value
        for step, value in shown.items()
        for i in (0, width // 2, width - 1)
    )
    return {step // width: value for step, value in shown.items()}


def send(job, batches, width):
    for batch in batches:
        if batch is None:
            job.compact()
        else:
            segments = [
                job.segment(file.name, file.start, *series_of(points, width))
                for file, points in batch
            ]
            job.api.write(job.experiment, *segments)


def check(job, model, width):
    """Compare what the server lists and reads with the model."""
    superseded = {number: points for number, _, points in model.attempts()}
    listed = job.attempts()
    expected = [(number, start, points * (width + 2)) for number, start, points in model.attempts()]
    assert listed == (expected if len(expected) > 1 else []), superseded
    for kind in KINDS:
        assert read_times(job, kind, width, downsample=100_000) == model.state()
        for number, _, _ in expected:
            is_newest = number == len(expected)
            before = float("inf") if is_newest else expected[number][1]
            for query in ({"sampling": "all"}, {"downsample": 100_000}):
                read = read_times(job, kind, width, attempt=number, **query)
                assert read == model.state(before), (kind, number, query)
    answer = job.api.request(
        "GET",
        f"/experiments/{job.experiment}/scalars/data",
        params={"attempt": len(expected) + 1},
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "attempt_not_found")


@pytest.mark.parametrize("at_once", [False, True], ids=["restarts", "at_once"])
@given(data=st.data())
@settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_attempts_equal_model_however_points_arrive(
    data, at_once, api, database, workspace_id, monkeypatch
):
    files = data.draw(histories(at_once=at_once), "files")
    batches = data.draw(arrivals(files), "arrivals")
    width = data.draw(st.sampled_from([1, 60, 1_100]), "width")
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", max(500, 3 * width))  # in several windows
    job = Job(api, api.new_experiment(), database, workspace_id)

    send(job, batches, width)
    model = Model(files)
    event(f"{len(model.attempts())} attempts")
    check(job, model, width)
    digests = job.api.get(job.experiment, "digests")["series"]
    job.compact()
    check(job, model, width)
    assert job.api.get(job.experiment, "digests")["series"] == digests
