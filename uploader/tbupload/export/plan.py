"""Plan of an export: the experiment's series, divided into jobs that can be repeated separately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tbupload.events.filters import SeriesFilter
from tbwire.points import DATA_CLASSES, DataClassName

POINTS_PER_JOB: Final = 5_000_000
"""Points per job, unless a single run has more: at most these are read again after a failure."""

VALUES_PER_JOB: Final = 20_000
"""Points per job of tensors and blob sequences."""

RUNS_PER_JOB: Final = 1_000

NAME_BYTES_PER_JOB: Final = 400_000
"""Bytes of run names, and of tag names, per request; the server accepts 1 MiB of JSON."""

SeriesListing = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{run: {tag: {plugin, count, …}}} of one data class."""


@dataclass(frozen=True)
class Job:
    """Series of one data class: all combinations of runs and tags (None: all), of one plugin."""

    kind: DataClassName
    runs: list[str]
    tags: list[str] | None
    plugin: str | None
    points: int
    series: int

    def query(self) -> dict[str, Any]:
        """Return the job as the fields of a data request."""
        fields: dict[str, Any] = {"run": self.runs}
        if self.tags is not None:
            fields["tag"] = self.tags
        if self.plugin is not None:
            fields["plugin"] = self.plugin
        return fields


UPLOADS: Final = "uploads"

TABLES: Final = (
    *("experiment", "properties", UPLOADS),
    *("runs", "series", "sessions", "hparams", "blobs"),
)
"""The tables of an export besides its points."""

PARTED_TABLES: Final = frozenset({"runs", "series", "blobs"})
"""Tables that can be limited to some series, and then may have several parts."""


@dataclass(frozen=True)
class TableJob:
    """A table, or the part with this number of one; `query` has the series it is of, None: all."""

    table: str
    number: int
    query: dict[str, Any] | None = None


@dataclass
class RunGroup:
    """Runs with event files that are written together; the jobs contain all their data.

    `start_times` are in seconds since the epoch, 0 if unknown. They are stored in the plan, since
    file names contain them, and a resumed export must find the same names.
    """

    start_times: dict[str, float]
    jobs: list[Job] = field(default_factory=list)

    @property
    def runs(self) -> list[str]:
        """Return the names of the runs."""
        return list(self.start_times)


def table_jobs(
    kind: DataClassName,
    listed: SeriesListing,
    series_filter: SeriesFilter,
    *,
    is_group: bool = False,
) -> Iterator[Job]:
    """Yield jobs for exactly the series that the filter accepts.

    With `is_group`, the runs are not divided further.
    """
    accepted = {
        run: _filter_tags(tags, series_filter)
        for run, tags in listed.items()
        if series_filter.accepts_run(run)
    }
    points_max = POINTS_PER_JOB if kind == "scalars" else VALUES_PER_JOB
    plugins: Iterable[str | None] = (
        [None] if series_filter.plugins is None else sorted(series_filter.plugins)
    )
    for plugin in plugins:
        selected = {run: _of_plugin(tags, plugin) for run, tags in accepted.items()}
        counts = {
            run: sum(series["count"] for series in tags.values())
            for run, tags in selected.items()
            if tags
        }
        tag_sets: list[frozenset[str] | None] = [None]
        if series_filter.chooses_tags:
            names = dict.fromkeys(sorted({tag for run in counts for tag in selected[run]}), 0)
            tag_sets = [frozenset(group) for group in _groups(names, 0, len(names))]
        for runs in [list(counts)] if is_group and counts else _groups(counts, points_max):
            for tags in tag_sets:
                series = [
                    fields
                    for run in runs
                    for tag, fields in selected[run].items()
                    if tags is None or tag in tags
                ]
                if series:
                    points = sum(fields["count"] for fields in series)
                    listed_tags = None if tags is None else sorted(tags)
                    yield Job(kind, runs, listed_tags, plugin, points, len(series))


def run_groups(
    start_times: Mapping[str, float],
    listed: Mapping[DataClassName, SeriesListing],
    series_filter: SeriesFilter,
) -> Iterator[RunGroup]:
    """Yield groups of runs with jobs for exactly the series that the filter accepts.

    Runs without accepted series are included (as empty event files), unless the filter restricts
    tags or plugins.
    """
    counts = _count_by_run(start_times, listed, series_filter)
    for group_runs in _groups(counts, POINTS_PER_JOB):
        group = RunGroup({run: start_times[run] for run in group_runs})
        for kind in DATA_CLASSES:
            group_series = {run: listed[kind][run] for run in group_runs if run in listed[kind]}
            group.jobs += table_jobs(kind, group_series, series_filter, is_group=True)
        yield group


def record_table_jobs(
    runs: Iterable[str],
    listed: Mapping[DataClassName, SeriesListing],
    point_jobs: Sequence[Job],
    series_filter: SeriesFilter,
) -> Iterator[TableJob]:
    """Yield jobs for the tables besides the points; `point_jobs` are all of those.

    With a filter, runs, series and blobs are those that it accepts, and the tables of sessions are
    left out: their metrics are of any series.
    """
    if series_filter == SeriesFilter():
        yield from (TableJob(table, 1) for table in TABLES)
        return

    yield from (TableJob(table, 1) for table in ("experiment", "properties", UPLOADS))
    counts = dict.fromkeys(_count_by_run(runs, listed, series_filter), 0)
    for number, group in enumerate(_groups(counts, POINTS_PER_JOB), 1):
        yield TableJob("runs", number, {"run": group})
    for number, job in enumerate(point_jobs, 1):
        yield TableJob("series", number, {**job.query(), "data_class": job.kind})
    blob_jobs = [job for job in point_jobs if job.kind == "blob_sequences"]
    for number, job in enumerate(blob_jobs, 1):
        yield TableJob("blobs", number, job.query())


def _count_by_run(
    runs: Iterable[str],
    listed: Mapping[DataClassName, SeriesListing],
    series_filter: SeriesFilter,
) -> dict[str, int]:
    """Return the accepted runs, with the number of their points; those of values weigh more."""
    counts = {run: 0 for run in runs if series_filter.accepts_run(run)}
    selected = set() if series_filter.chooses_series else set(counts)
    for kind, listed_runs in listed.items():
        weight = 1 if kind == "scalars" else POINTS_PER_JOB // VALUES_PER_JOB
        for run, tags in listed_runs.items():
            accepted = _filter_tags(tags, series_filter) if run in counts else {}
            if accepted:
                selected.add(run)
                counts[run] += weight * sum(series["count"] for series in accepted.values())
    return {run: count for run, count in counts.items() if run in selected}


def _filter_tags(
    tags: Mapping[str, Mapping[str, Any]], series_filter: SeriesFilter
) -> dict[str, Mapping[str, Any]]:
    return {
        tag: series
        for tag, series in tags.items()
        if series_filter.accepts_series(tag, series["plugin"])
    }


def _of_plugin(
    tags: dict[str, Mapping[str, Any]], plugin: str | None
) -> dict[str, Mapping[str, Any]]:
    return {tag: series for tag, series in tags.items() if plugin in {None, series["plugin"]}}


def _groups(
    counts: Mapping[str, int], points_max: int, names_max: int = RUNS_PER_JOB
) -> Iterator[list[str]]:
    """Divide names into consecutive groups within the limits; what is larger is alone in one."""
    group: list[str] = []
    points = size = 0
    for name, count in counts.items():
        name_bytes = len(name.encode()) + len('"",')  # in a JSON array, unescaped
        is_full = (
            points + count > points_max
            or size + name_bytes > NAME_BYTES_PER_JOB
            or len(group) >= names_max
        )
        if group and is_full:
            yield group
            group, points, size = [], 0, 0
        group.append(name)
        points += count
        size += name_bytes

    if group:
        yield group
