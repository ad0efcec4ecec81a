"""How long a sample of long series takes over HTTP, and the names of a million series."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType

import httpx2
import numpy as np
from bench import Bench, say
from machine import median_of, report, time_once
from service import Service
from storage import wait_for_merge

from support.batches import ApiClient, scalars, segment, stream
from support.uploading import Reader
from tbupload.notebook.experiment import Experiment

SERIES = 20
POINTS = 1_000_000
BATCH_POINTS = 500_000
SAMPLE = 1_000
ROUNDS = 50
NAMED_RUNS, NAMED_TAGS = 1_000, 1_000
NAMES_ROUNDS = 15
NAMES_FROM_ROWS = """
    SELECT run_id, string_agg(int8send(tag_id), ''::bytea), max(count) FROM time_series
    GROUP BY experiment_id, run_id
"""
_QUALITIES = itertools.count(100)


def measure(bench: Bench) -> None:
    """Writes series by series, as an uploader's batches would, and samples all of them in one
    request; `--only` takes sample or names alone.
    """
    with bench.new_service() as service:
        if bench.is_chosen("sample"):
            _measure(service)
        if bench.is_chosen("names"):
            _measure_names(service, bench.scale)


def _measure(service: Service) -> None:
    reader, api = service.reader, service.api
    experiment_id = api.new_experiment(name="long series")
    say(f"writing {SERIES} series of {POINTS:,} points")
    report(
        "written over HTTP, points",
        f"{SERIES * POINTS / time_once(lambda: _write(api, experiment_id)):,.0f}/s",
    )
    say("waiting until everything is merged")
    wait_for_merge(service)

    path = f"/api/v1/experiments/{experiment_id}/scalars/data"

    def receive(points: int, coding: str) -> httpx2.Response:
        return _receive(
            reader, f"{path}?run=train&downsample={points}", {"Accept-Encoding": coding}
        )

    def sample(points: int) -> None:
        tags = receive(points, "gzip").json()
        assert [len(columns["steps"]) for columns in tags["train"].values()] == [points] * SERIES

    whole = median_of(lambda: sample(SAMPLE), ROUNDS)
    plain = median_of(lambda: receive(SAMPLE, "identity"), ROUNDS)
    # Packed blocks in place of JSON; each time another number, as a worker keeps its answers.
    numbers = itertools.count(SAMPLE)
    experiment = Experiment(experiment_id, token=service.token, server=service.live.url)
    frame = median_of(
        lambda: experiment.scalars("train", sampling="uniform", downsample=next(numbers)), ROUNDS
    )
    last = median_of(lambda: sample(1), ROUNDS)
    least = median_of(lambda: reader.http.get("/healthz").raise_for_status(), ROUNDS)
    report(
        f"{SAMPLE:,} points of each of {SERIES} series, median of {ROUNDS}",
        f"{whole * 1000:.1f} ms",
        "at most 50",
    )
    report(
        "the same bytes, neither compressed nor parsed",
        f"{plain * 1000:.1f} ms",
        f"{plain / least:.0f} x a request that reads nothing; at most 15",
    )
    report(
        "the same points as a DataFrame of the Python client",
        f"{frame * 1000:.1f} ms",
        f"{frame / whole:.2f} x that as JSON, parsed",
    )
    report("the last point of each", f"{last * 1000:.1f} ms")
    report(
        "a request that reads nothing",
        f"{least * 1000:.1f} ms",
        f"the sample is {whole / least:.0f} x",
    )


def _measure_names(service: Service, scale: float) -> None:
    runs = max(1, round(NAMED_RUNS * scale))
    experiment_id = service.api.new_experiment(name="names")
    say(f"writing {runs:,} runs of {NAMED_TAGS:,} tags")
    series = [scalars(f"metrics/tag_{number:03d}", [0]) for number in range(NAMED_TAGS)]
    for number in range(runs):
        service.api.write(experiment_id, segment(stream(f"run_{number:04d}"), 0, 9, *series))
    service.query("VACUUM ANALYZE time_series")  # as autovacuum does within a minute
    rows = median_of(lambda: service.query(NAMES_FROM_ROWS), NAMES_ROUNDS)
    for what, path, target in (
        ("names of all", "names", "at most 300 ms"),
        ("a page of 10,000", "scalars?limit=10000", ""),
    ):
        url = f"/api/v1/experiments/{experiment_id}/{path}"
        seconds = median_of(lambda url=url: _receive(service.reader, url), NAMES_ROUNDS)
        report(f"{runs:,} runs x {NAMED_TAGS:,} tags: {what}", f"{seconds * 1000:.0f} ms", target)
        report(f"{what} : one scan of the rows of all", f"{seconds / rows:.2f} x")


def _receive(
    reader: Reader, url: str, headers: Mapping[str, str] = MappingProxyType({})
) -> httpx2.Response:
    """Get an answer with headers of its own: the worker keeps it for others who send the same."""
    accept = {"Accept": f"application/json;q=0.{next(_QUALITIES)}"}
    return reader.http.get(url, headers={**accept, **headers}).raise_for_status()


def _write(api: ApiClient, experiment_id: str) -> None:
    values = np.exp(-np.arange(POINTS) / 2e5)
    random = np.random.default_rng(0)
    offset = 0
    for number in range(SERIES):
        for start in range(0, POINTS, BATCH_POINTS):
            steps = np.arange(start, start + BATCH_POINTS)
            noisy = np.float32(values[steps] + random.normal(0, 0.05, len(steps)))
            times = 1.7e9 + np.cumsum(random.exponential(0.01, len(steps))) + start
            series = scalars(f"metrics/tag_{number:02d}", steps, noisy, times)
            api.write(experiment_id, segment(stream(), offset, offset + len(steps), series))
            offset += len(steps)
