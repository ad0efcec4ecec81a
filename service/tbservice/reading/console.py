"""Read the end of a training's console, each line with the step at which it was printed.

A line says nothing of steps, or what it says has any form. What is known is when it was printed:
its step is that of the scalar that was logged nearest to that, in any run. Both are times of one
machine, unless an uploader follows the training of another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.experiment_values import UploadRecord
from tbservice.experiments import uploads
from tbservice.reading import curves
from tbservice.reading.sampling import uniform
from tbservice.samples import ScalarSample
from tbservice.series.tables import time_series
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import ALL_STEPS, Selection, StepRange
from tbservice.types.series import Series
from tbwire.points import DataClass

SEARCH_CHARS_MAX: Final = 200
"""Characters of a text to search in a console."""

RUNS_ITEMS_MAX: Final = 20
"""Runs (items) in which steps are looked for: the newest."""

TAGS_ITEMS_MAX: Final = 12
"""Tags (items) of these runs in which steps are looked for: those that a page shows first."""

SAMPLE_POINTS: Final = 1_000
"""Points of a run that are read to find the steps in question."""

REFINED_POINTS: Final = 50_000
"""Points of a run that are read of those steps: all of them, in most runs."""

_AFTER_SECONDS_MAX: Final = 1.0
"""How long after its line a point may be logged: scripts print before they log, or after it."""


class ConsoleLine(NamedTuple):
    """A line, its number from 1 on, when it was printed, and what was logged then."""

    number: int
    text: str
    time: datetime | None
    run: str | None
    step: int | None


class ConsoleLines(NamedTuple):
    """Lines of a console, of `total` that are recorded."""

    lines: list[ConsoleLine]
    total: int


def read_lines(
    db: Connection, grant: ReadGrant, upload: UploadRecord, search: str = ""
) -> ConsoleLines:
    """Return the lines of an upload's console that contain a text, ignoring case.

    `db` is a snapshot. Runs with metrics of the machine alone count for no step.
    """
    recorded = upload.origin.get("console", "")
    texts = recorded.split("\n") if recorded else []
    times = uploads.read_times(upload)
    if len(times) != len(texts):  # another client's
        times = []
    wanted = search.casefold()
    places = [place for place, text in enumerate(texts) if wanted in text.casefold()]
    steps = _find_steps(db, grant, [times[place] for place in places] if times else [])
    lines = [
        ConsoleLine(
            place + 1,
            texts[place],
            datetime.fromtimestamp(times[place], UTC) if times else None,
            *(steps[index] if times else (None, None)),
        )
        for index, place in enumerate(places)
    ]
    return ConsoleLines(lines, len(texts))


def _find_steps(
    db: Connection, grant: ReadGrant, times: Sequence[float]
) -> list[tuple[str | None, int | None]]:
    """Return the run and step of the point logged nearest to each of the times (epoch seconds)."""
    series_list = _list_candidates(db, grant) if times else []
    experiment_id = grant.experiment_id
    samples = uniform.sample_scalars(db, experiment_id, series_list, SAMPLE_POINTS, ALL_STEPS)
    steps = _match(series_list, samples, times)
    # The lines are mostly of a small part of a run, of which a sample of all has few points.
    for series in series_list:
        within = [step for run, step in steps if run == series.run and step is not None]
        sample = samples.get(series.series_id)
        if within and sample is not None and sample.total > len(sample.steps):
            around = _widen(sample, min(within), max(within))
            samples |= uniform.sample_scalars(db, experiment_id, [series], REFINED_POINTS, around)
    return _match(series_list, samples, times)


def _list_candidates(db: Connection, grant: ReadGrant) -> list[Series]:
    """Return the scalar series with the most points of each of the newest runs."""
    runs, _ = curves.list_run_page(db, grant, "", RUNS_ITEMS_MAX)
    tags, _ = curves.list_tag_page(db, grant, "", 0, TAGS_ITEMS_MAX)
    selection = Selection(None, frozenset(runs), frozenset(tags), DataClass.SCALAR)
    longest: dict[str, Series] = {}
    for series in time_series.list_series(db, grant.experiment_id, selection):
        is_machine = series.run.startswith("system/")
        # The points of others would all be read, to be counted.
        is_cheap = series.count_is_exact or series.count <= limits.BLOCK_POINTS_MAX
        longer = series.count > getattr(longest.get(series.run), "count", 0)
        if longer and is_cheap and not is_machine:
            longest[series.run] = series
    return list(longest.values())


def _match(
    series_list: Sequence[Series], samples: Mapping[int, ScalarSample], times: Sequence[float]
) -> list[tuple[str | None, int | None]]:
    known = [
        (series.run, samples[series.series_id])
        for series in series_list
        if series.series_id in samples
    ]
    if not known:
        return [(None, None)] * len(times)
    walls = np.concatenate([sample.wall_times for _, sample in known])
    steps = np.concatenate([sample.steps for _, sample in known])
    owners = np.repeat(np.arange(len(known)), [len(sample.steps) for _, sample in known])
    order = np.argsort(walls, kind="stable")  # wall times may go back, or be NaN, which is last
    ordered = walls[order]
    ends = np.searchsorted(ordered, times, "right")
    matches: list[tuple[str | None, int | None]] = []
    for time, end in zip(times, ends.tolist(), strict=True):
        near = [place for place in (end - 1, end) if 0 <= place < len(ordered)]
        near = [place for place in near if ordered[place] - time <= _AFTER_SECONDS_MAX]
        if not near:
            matches.append((None, None))
            continue
        place = order[min(near, key=lambda place: abs(ordered[place] - time))]
        matches.append((known[owners[place]][0], int(steps[place])))
    return matches


def _widen(sample: ScalarSample, first: int, last: int) -> StepRange:
    """Return the steps from the sampled one before `first` to that after `last`."""
    low = max(0, int(np.searchsorted(sample.steps, first)) - 1)
    high = min(len(sample.steps) - 1, int(np.searchsorted(sample.steps, last)) + 1)
    return StepRange(int(sample.steps[low]), int(sample.steps[high]))
