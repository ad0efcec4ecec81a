"""Check that filters match something, and say what they might have been meant to match."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tbupload.errors import ReadError
from tbupload.events.event_file import EventFileReader
from tbupload.events.filters import SeriesFilter
from tbupload.events.tag_registry import STOCK_PLUGINS
from tbupload.http.wire_limits import WireLimits
from tbupload.limits import CHUNK_BYTES
from tbupload.logdir.scan import scan_logdir
from tbupload.upload.plugins.projector_stream import PLUGIN as PROJECTOR
from tbupload.upload.plugins.projector_stream import ProjectorStream

NAMES_MAX: Final = 10_000
"""Series whose names are compared with a filter, at most."""

NAMES_SHOWN: Final = 5
"""Names of a kind in a message, at most."""

NAME_CHARS_SHOWN: Final = 100
"""Characters of a name in a message, at most."""

PLUGIN_SIMILARITY_MIN: Final = 0.85
"""Similarity (`difflib`) from which a plugin's name is a misspelled one: "scalar" is, "my_images"
not."""

KNOWN_PLUGINS: Final = STOCK_PLUGINS | {"graphs", PROJECTOR}
"""Plugins that a name may have been meant to be before there are any files."""

DASHBOARDS: Final = {
    "distributions": "histograms",
    "embeddings": PROJECTOR,
    "timeseries": "scalars",
    "time_series": "scalars",
}
"""Plugins that own the data of dashboards with another name."""

EVERYTHING: Final = SeriesFilter()


def find_misspelled(plugins: Iterable[str]) -> dict[str, list[str]]:
    """Return the unknown plugins that are named like known ones, and which those are."""
    unknown = sorted(set(plugins) - KNOWN_PLUGINS)
    return {plugin: names for plugin in unknown if (names := _near_plugins(plugin, KNOWN_PLUGINS))}


def misspelled_plugin(logdir: Path, series_filter: SeriesFilter, limits: WireLimits) -> str | None:
    """Return a sentence about a plugin that is named like a known one, and is not in the files.

    None without such a plugin. Any other name may be one of the user's own plugins.
    """
    near = find_misspelled(series_filter.plugins or ())
    if not near:
        return None
    present = _Names.of(_read_series(logdir, EVERYTHING, limits)).plugins
    for plugin, names in near.items():
        if plugin not in present:
            return f"--plugins {plugin}: there is no such plugin; did you mean {_join(names)}?"
    return None


def explain_no_match(logdir: Path, series_filter: SeriesFilter, limits: WireLimits) -> str | None:
    """Return a sentence about filters that match nothing in a log directory.

    None if they match something, or if there is nothing that they could match yet. Reads until the
    first match; without one, all files twice.
    """
    if series_filter == EVERYTHING:
        return None
    if next(_read_series(logdir, series_filter, limits), None) is not None:
        return None
    names = _Names.of(_read_series(logdir, EVERYTHING, limits))
    return names.explain(series_filter, str(logdir)) if names.series else None


def explain_filters(logdir: Path, series_filter: SeriesFilter, limits: WireLimits) -> str | None:
    """Return a sentence about a misspelled plugin, or filters that match nothing of the files."""
    return misspelled_plugin(logdir, series_filter, limits) or explain_no_match(
        logdir, series_filter, limits
    )


def explain_no_match_of(
    series: Iterable[tuple[str, str, str]], series_filter: SeriesFilter, place: str
) -> str | None:
    """Return a sentence about filters that match none of the series: run, tag and plugin of each.

    None if they match one, or if there are none. `place` says where the series are.
    """
    names = _Names.of(series)
    if any(
        series_filter.accepts_run(run) and series_filter.accepts_series(tag, plugin)
        for run, tag, plugin in names.series
    ):
        return None
    return names.explain(series_filter, place) if 0 < len(names.series) < NAMES_MAX else None


class FilterMonitor:
    """Reports that the filters have matched nothing yet of a log directory that is followed.

    `problem` is the sentence about it that the last `check` found.

    Args:
        logdir: The log directory.
        series_filter: The filters.
        limits: The server's limits.
        period_seconds: Time until the first check; it doubles, since a check may read all files.
        report: Called with a sentence.
    """

    def __init__(
        self,
        logdir: Path,
        series_filter: SeriesFilter,
        limits: WireLimits,
        period_seconds: float,
        report: Callable[[str], None],
    ) -> None:
        self.problem: str | None = None
        self._arguments = (logdir, series_filter, limits)
        self._period_seconds = period_seconds
        self._next_at = time.monotonic() + period_seconds
        self._report = report

    def poll(self) -> None:
        """Check if it is time to; to be called while nothing has matched and nothing is sent."""
        if time.monotonic() < self._next_at:
            return
        if sentence := explain_no_match(*self._arguments):
            self._report(sentence)
        self._period_seconds *= 2
        self._next_at = time.monotonic() + self._period_seconds

    def check(self) -> None:
        """Check what is there now; to be called if nothing has matched."""
        self.problem = explain_no_match(*self._arguments)
        if self.problem is not None:
            self._report(self.problem)


@dataclass
class _Names:
    """The series of a log directory: run, tag and plugin of each, at most NAMES_MAX."""

    series: set[tuple[str, str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, series: Iterable[tuple[str, str, str]]) -> _Names:
        """Return the first NAMES_MAX different ones of the series."""
        names = cls()
        for each in series:
            names.series.add(each)
            if len(names.series) >= NAMES_MAX:
                break
        return names

    @property
    def plugins(self) -> set[str]:
        """Return the plugins of the series."""
        return {plugin for _, _, plugin in self.series}

    def explain(self, series_filter: SeriesFilter, place: str) -> str:
        """Return which of the filters match nothing, and names that are similar."""
        reasons = [
            *self._explain_plugins(series_filter),
            *self._explain_patterns(
                "runs", 0, series_filter.include_runs, series_filter.exclude_runs
            ),
            *self._explain_patterns(
                "tags", 1, series_filter.include_tags, series_filter.exclude_tags
            ),
        ]
        if not reasons:
            reasons = ["each filter matches some series, but no series matches all of them"]
        return f"nothing in {place} matches the filters: {'; '.join(reasons)}"

    def _explain_plugins(self, series_filter: SeriesFilter) -> Iterator[str]:
        wanted, present = series_filter.plugins, self.plugins
        if wanted is None or wanted & present:
            return
        near = sorted({name for plugin in wanted for name in _near_plugins(plugin, present)})
        yield (
            f"--plugins {','.join(sorted(wanted))}: the plugins there are "
            f"{_join(sorted(present))}{_question(near)}"
        )

    def _explain_patterns(
        self,
        kind: str,
        index: int,
        include: re.Pattern[str] | None,
        exclude: re.Pattern[str] | None,
    ) -> Iterator[str]:
        names = sorted({each[index] for each in self.series})
        if include is not None and not any(map(include.fullmatch, names)):
            yield f"--include-{kind} {include.pattern} {matches_none(include, names, kind)}"
        if exclude is not None and all(map(exclude.fullmatch, names)):
            yield f"--exclude-{kind} {exclude.pattern} excludes all of {len(names):,} {kind}"


def _read_series(
    logdir: Path, series_filter: SeriesFilter, limits: WireLimits
) -> Iterator[tuple[str, str, str]]:
    """Yield run, tag and plugin of each series as it is read; what cannot be read is left out."""
    scan = scan_logdir(logdir, series_filter, limits.name_chars_max)
    read_limits = limits.read_limits(CHUNK_BYTES)
    for file in scan.files:
        reader = EventFileReader(
            file.path, start=0, series_filter=series_filter, limits=read_limits
        )
        try:
            while (chunk := reader.read(final=True)) is not None:
                for series in chunk.series:
                    yield file.run, series.tag, series.plugin
        except (ReadError, OSError):
            continue  # the upload reports it
    for folder in scan.projector_folders:
        segment, _ = ProjectorStream(folder, logdir, series_filter, limits).segment()
        if segment is not None:
            for tag in segment.metadata:
                yield folder.run, tag, PROJECTOR


def matches_none(pattern: re.Pattern[str], names: list[str], kind: str) -> str:
    """Say that a pattern matches none of these sorted names, and which it may have meant."""
    near = [name for name in names if pattern.search(name)]
    near += difflib.get_close_matches(pattern.pattern, sorted(set(names) - set(near)))
    return (
        f"matches none of {len(names):,} {kind} completely{_question(near) or f' ({_join(names)})'}"
    )


def _near_plugins(plugin: str, present: Iterable[str]) -> list[str]:
    names = sorted(present)
    alias = DASHBOARDS.get(plugin)
    if alias in names:
        return [alias]
    return difflib.get_close_matches(plugin, names, n=1, cutoff=PLUGIN_SIMILARITY_MIN)


def _question(names: list[str]) -> str:
    return f"; did you mean {_join(names)}?" if names else ""


def _join(names: list[str]) -> str:
    shown = [name[:NAME_CHARS_SHOWN] for name in names[:NAMES_SHOWN]]
    more = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown)}{more}"
