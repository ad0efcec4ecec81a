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
    kind: DataClassName, listed: SeriesListing, series_filter: SeriesFilter
) -> Iterator[Job]:
    """Yield jobs for exactly the series that the filter accepts."""
    plugins: Iterable[str | None] = (
        [None] if series_filter.plugins is None else sorted(series_filter.plugins)
    )
    for plugin in plugins:
        yield from _jobs(kind, _filter_by_plugin(listed, plugin), series_filter, plugin)


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
    plugins: list[str | None] = (
        [None] if series_filter.plugins is None else [*sorted(series_filter.plugins)]
    )
    for group_runs in _groups(counts, POINTS_PER_JOB):
        group = RunGroup({run: start_times[run] for run in group_runs})
        for kind in DATA_CLASSES:
            group_series = {run: listed[kind][run] for run in group_runs if run in listed[kind]}
            for plugin in plugins:
                group.jobs += _jobs(
                    kind,
                    _filter_by_plugin(group_series, plugin),
                    series_filter,
                    plugin,
                    is_group=True,
                )
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


def _jobs(
    kind: DataClassName,
    listed: SeriesListing,
    series_filter: SeriesFilter,
    plugin: str | None,
    *,
    is_group: bool = False,
) -> Iterator[Job]:
    """Yield jobs for all the runs; with `is_group`, the runs are not divided further."""
    selected = {
        run: accepted
        for run, tags in listed.items()
        if series_filter.accepts_run(run) and (accepted := _filter_tags(tags, series_filter))
    }
    tag_sets: list[frozenset[str] | None] = [None]
    if series_filter.chooses_tags:
        tag_sets = list(_chunks(sorted({tag for tags in selected.values() for tag in tags})))

    counts = {
        run: sum(series["count"] for series in tags.values()) for run, tags in selected.items()
    }
    points_max = POINTS_PER_JOB if kind == "scalars" else VALUES_PER_JOB
    for runs in [list(counts)] if is_group and counts else _groups(counts, points_max):
        for tags in tag_sets:
            series = [
                fields
                for run in runs
                for tag, fields in selected[run].items()
                if tags is None or tag in tags
            ]
            if series:
                names = None if tags is None else sorted(tags)
                yield Job(
                    kind,
                    runs,
                    names,
                    plugin,
                    sum(fields["count"] for fields in series),
                    len(series),
                )


def _filter_by_plugin(listed: SeriesListing, plugin: str | None) -> SeriesListing:
    if plugin is None:
        return listed
    narrowed = {
        run: {tag: series for tag, series in tags.items() if series["plugin"] == plugin}
        for run, tags in listed.items()
    }
    return {run: tags for run, tags in narrowed.items() if tags}


def _filter_tags(
    tags: Mapping[str, Mapping[str, Any]], series_filter: SeriesFilter
) -> dict[str, Mapping[str, Any]]:
    return {
        tag: series
        for tag, series in tags.items()
        if series_filter.accepts_series(tag, series["plugin"])
    }


def _groups(counts: Mapping[str, int], points_max: int) -> Iterator[list[str]]:
    """Divide runs into consecutive groups within the limits; a larger run is a separate group."""
    group: list[str] = []
    points = size = 0
    for run, count in counts.items():
        run_bytes = _bytes(run)
        is_full = (
            points + count > points_max
            or size + run_bytes > NAME_BYTES_PER_JOB
            or len(group) >= RUNS_PER_JOB
        )
        if group and is_full:
            yield group
            group, points, size = [], 0, 0
        group.append(run)
        points += count
        size += run_bytes

    if group:
        yield group


def _chunks(tags: Iterable[str]) -> Iterator[frozenset[str]]:
    """Divide tags into sets with names of at most NAME_BYTES_PER_JOB."""
    chunk: list[str] = []
    size = 0
    for tag in tags:
        if chunk and size + _bytes(tag) > NAME_BYTES_PER_JOB:
            yield frozenset(chunk)
            chunk, size = [], 0
        chunk.append(tag)
        size += _bytes(tag)
    if chunk:
        yield frozenset(chunk)


def _bytes(name: str) -> int:
    """Return the size of a name in a JSON array, unescaped."""
    return len(name.encode()) + len('"",')
