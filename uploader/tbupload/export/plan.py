"""What an export will ask for: the series an experiment has, cut into jobs that can be done again one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tbupload.events.filters import SeriesFilter
from tbupload.export.remote_series import DATA_CLASSES, DataClass

POINTS_PER_JOB: Final = 5_000_000
"""Points after which a job takes no further run: what is lost of a job that is broken off."""

VALUES_PER_JOB: Final = 20_000
"""The same for tensors and blob sequences."""

RUNS_PER_JOB: Final = 1_000

NAME_BYTES_PER_JOB: Final = 400_000
"""Bytes of names in one request, of runs and as many of tags: the server takes 1 MiB of JSON."""

SeriesListing = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{run: {tag: {plugin, count, …}}} of one kind."""


@dataclass(frozen=True, slots=True)
class Job:
    """Some series of one kind: the cross product of runs and tags (None: all), of one plugin (None: any)."""

    kind: DataClass
    runs: list[str]
    tags: list[str] | None
    plugin: str | None
    points: int
    series: int

    def query(self) -> dict[str, Any]:
        """The same as the fields of a request."""
        fields: dict[str, Any] = {"run": self.runs}
        if self.tags is not None:
            fields["tag"] = self.tags
        if self.plugin is not None:
            fields["plugin"] = self.plugin
        return fields


@dataclass(slots=True)
class RunGroup:
    """Runs whose event files are written together: the jobs are all there is of them.

    `start_times` are in seconds, 0 where they are not known. They are part of files' names, and so stay as they were.
    """

    start_times: dict[str, float]
    jobs: list[Job] = field(default_factory=list)

    @property
    def runs(self) -> list[str]:
        """The names of the runs."""
        return list(self.start_times)


def table_jobs(
    kind: DataClass, listed: SeriesListing, series_filter: SeriesFilter
) -> Iterator[Job]:
    """Jobs that together are exactly the series the filter accepts."""
    plugins: Iterable[str | None] = (
        [None] if series_filter.plugins is None else sorted(series_filter.plugins)
    )
    for plugin in plugins:
        yield from _jobs(kind, _filter_by_plugin(listed, plugin), series_filter, plugin)


def run_groups(
    start_times: Mapping[str, float],
    listed: Mapping[DataClass, SeriesListing],
    series_filter: SeriesFilter,
) -> Iterator[RunGroup]:
    """Groups of these runs with the jobs for all their kinds, which together are the series the filter accepts.

    Runs without any such series are among them, unless it is series that are chosen.
    """
    counts = {run: 0 for run in start_times if series_filter.accepts_run(run)}
    chosen = set() if series_filter.chooses_series else set(counts)
    for kind, of_kind in listed.items():
        weight = 1 if kind == "scalars" else POINTS_PER_JOB // VALUES_PER_JOB
        for run, tags in of_kind.items():
            accepted = _filter_tags(tags, series_filter) if run in counts else {}
            if accepted:
                chosen.add(run)
                counts[run] += weight * sum(one["count"] for one in accepted.values())
    for group_runs in _groups(
        {run: count for run, count in counts.items() if run in chosen}, POINTS_PER_JOB
    ):
        group = RunGroup({run: start_times[run] for run in group_runs})
        for kind in DATA_CLASSES:
            some = {run: listed[kind][run] for run in group_runs if run in listed[kind]}
            for plugin in (
                [None] if series_filter.plugins is None else sorted(series_filter.plugins)
            ):
                group.jobs += _jobs(
                    kind, _filter_by_plugin(some, plugin), series_filter, plugin, whole=True
                )
        yield group


def _jobs(
    kind: DataClass,
    listed: SeriesListing,
    series_filter: SeriesFilter,
    plugin: str | None,
    *,
    whole: bool = False,
) -> Iterator[Job]:
    """Jobs over all the runs; one a set of tags when `whole`, otherwise of about POINTS_PER_JOB points each."""
    chosen = {
        run: accepted
        for run, tags in listed.items()
        if series_filter.accepts_run(run) and (accepted := _filter_tags(tags, series_filter))
    }
    tag_sets: list[frozenset[str] | None] = [None]
    if series_filter.chooses_tags:
        tag_sets = list(_chunks(sorted({tag for tags in chosen.values() for tag in tags})))
    counts = {run: sum(one["count"] for one in tags.values()) for run, tags in chosen.items()}
    points_max = POINTS_PER_JOB if kind == "scalars" else VALUES_PER_JOB
    for runs in [list(counts)] if whole and counts else _groups(counts, points_max):
        for tags in tag_sets:
            series = [
                one
                for run in runs
                for tag, one in chosen[run].items()
                if tags is None or tag in tags
            ]
            if series:
                names = None if tags is None else sorted(tags)
                yield Job(
                    kind, runs, names, plugin, sum(one["count"] for one in series), len(series)
                )


def _filter_by_plugin(listed: SeriesListing, plugin: str | None) -> SeriesListing:
    if plugin is None:
        return listed
    narrowed = {
        run: {tag: one for tag, one in tags.items() if one["plugin"] == plugin}
        for run, tags in listed.items()
    }
    return {run: tags for run, tags in narrowed.items() if tags}


def _filter_tags(
    tags: Mapping[str, Mapping[str, Any]], series_filter: SeriesFilter
) -> dict[str, Mapping[str, Any]]:
    return {
        tag: one for tag, one in tags.items() if series_filter.accepts_series(tag, one["plugin"])
    }


def _groups(counts: Mapping[str, int], points_max: int) -> Iterator[list[str]]:
    """Runs next to each other, one at least, until they have so many points or their names are too long."""
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
    return len(name.encode()) + len('"",')
