"""Curves of groups of runs beside numpy, on real logs and on the same with NaN and missing steps:
how far each statistic is from numpy's.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from bench import Bench
from machine import report
from service import Service
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from support.event_files import scalar_event, write_records
from support.uploading import Uploader

LOGDIR = Path(os.environ.get("LOGDIR", "tests/data/tensorboard_reducer"))
PATTERN = "^(.*)/"
QUANTILES = (0.1, 0.9)
TARGET = "at most 1e-12"

Points = dict[int, float]
"""Value by step: of a step that was logged again, the newest."""


def measure(bench: Bench) -> None:
    """Compare each tag of each directory of runs; the variable LOGDIR names other logs."""
    warnings.simplefilter("ignore", RuntimeWarning)  # of steps where no run has a value
    logs = {path.relative_to(LOGDIR): _read(path) for path in sorted(LOGDIR.glob("*/*"))}
    with bench.new_service() as service:
        _compare(service, "as logged", LOGDIR, logs)
        holes = {path: _spoil(number, tags) for number, (path, tags) in enumerate(logs.items())}
        directory = service.directory / "holes"
        for path, tags in holes.items():
            events = [
                scalar_event(tag, step, value)
                for tag, points in tags.items()
                for step, value in points.items()
            ]
            write_records(directory / path / "events.out.tfevents.1700000000.holes", events)
        _compare(service, "with holes", directory, holes)


def _read(directory: Path) -> dict[str, Points]:
    """Return the scalars of a run, as TensorBoard's loader reads them."""
    tags: dict[str, Points] = {}
    for file in sorted(directory.iterdir()):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    tags.setdefault(value.tag, {})[event.step] = value.tensor.float_val[0]
    return tags


def _spoil(number: int, tags: Mapping[str, Points]) -> dict[str, Points]:
    """Return a run that lacks steps and has values that are not finite."""
    generator = np.random.default_rng(number)
    spoiled = {}
    for tag, points in tags.items():
        kept = sorted(points)[: len(points) - number * len(points) // 10]
        spoiled[tag] = {
            step: math.nan if chance < 0.3 else points[step]
            for step, chance in zip(kept, generator.random(len(kept)), strict=True)
            if chance > 0.1
        }
    return spoiled


def _compare(
    service: Service, name: str, logdir: Path, logs: Mapping[Path, dict[str, Points]]
) -> None:
    uploader = Uploader(service.live.url, service.token, service.directory / name.replace(" ", "_"))
    uploader.directory.mkdir()
    ended = uploader.run("--one-shot", "--logdir", logdir, "--name", name)
    assert ended.code == 0, ended
    http = service.reader.http
    workspace = http.get("/api/v1/me").json()["workspace"]["workspace_id"]
    for tag in sorted({tag for tags in logs.values() for tag in tags}):
        query = {"metric": tag, "run_pattern": PATTERN, "quantile": QUANTILES, "downsample": 9_999}
        query["where"] = f'experiment_name = "{name}"'
        address = f"/api/v1/workspaces/{workspace}/runs/curves"
        answer = http.get(address, params=query).raise_for_status().json()
        for group in answer["groups"]:
            (parent,) = group["group"].values()
            of_group = [tags for path, tags in logs.items() if str(path.parent) == parent]
            runs = [tags[tag] for tags in of_group if tag in tags]
            report(f"  {name}: {tag}", _tell(group, runs), TARGET)


def _tell(group: dict[str, Any], runs: list[Points]) -> str:
    """Return the greatest difference of each statistic from numpy's; counts must be the same."""
    steps = np.array(group["steps"])
    assert steps.tolist() == sorted(set().union(*runs))
    matrix = np.array([_interpolate(points, steps) for points in runs])
    finite = np.isfinite(matrix)
    assert group["count"] == finite.sum(axis=0).tolist()
    expected = {
        "mean": np.nanmean(matrix, axis=0),
        "std": np.nanstd(matrix, axis=0, ddof=1),
        "median": np.nanmedian(matrix, axis=0),
        **{f"{each:g}": np.nanquantile(matrix, each, axis=0) for each in QUANTILES},
    }
    actual = {**group, **group["quantiles"]}
    scale = np.nanmax(np.abs(matrix))
    differences = {}
    for name, values in expected.items():
        ours = np.array(actual[name], float)
        assert np.array_equal(np.isnan(ours), np.isnan(values)), name
        if np.isfinite(values).any():  # a single run has no deviation
            differences[name] = np.nanmax(np.abs(ours - values)) / scale
    few = f"{len(runs)} runs, {len(steps)} steps, {(~finite).sum()} without a value: "
    return few + ", ".join(f"{name} {each:.0e}" for name, each in differences.items())


def _interpolate(points: Points, steps: Any) -> Any:
    own = np.array(sorted(points))
    values = np.array([points[step] for step in own.tolist()])
    row = np.interp(steps, own, values, left=np.nan, right=np.nan)
    row[np.searchsorted(steps, own)] = values  # numpy's neighbours of NaN are NaN
    return row
