"""Groups of runs as the runs of a source: a page of TensorBoard shows each group as one run.

A scalar tag of a group has the mean of its runs at each step; other tags have what bounds a band
around it. The rule is that of the curves (`spread`), on every stored point.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlencode

import numpy as np

from tbservice.errors import MalformedRequest
from tbservice.reading.comparison import ComparisonReader
from tbservice.reading.source import ExperimentReader
from tbservice.reading.tag_groups import TagGroup
from tbservice.runs.curves import (
    CURVE_STEPS_MAX,
    CurvesQuery,
    GroupCurve,
    Scan,
    SeriesPoints,
    compute_curves,
    plan_groups,
    restrict_groups,
    scan_scalars,
    select_rows,
)
from tbservice.runs.filters import FILTER_CHARS_MAX
from tbservice.runs.grouping import GroupBy, RunGroups, group_runs
from tbservice.runs.selected_runs import SelectedRuns, select_of_readers
from tbservice.runs.spread import Spread
from tbservice.samples import Samples, ScalarSample
from tbservice.types.identifiers import ExperimentId, Float64s
from tbservice.types.sampling import Selection
from tbservice.types.series import Run, Series
from tbwire.hparams import HparamValue
from tbwire.points import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata

SCALARS: Final = "scalars"
"""The plugin that the series of groups belong to."""

KIND: Final = (SCALARS, DataClass.SCALAR)
"""The kind of their series."""

CUSTOM_SCALARS: Final = "custom_scalars"
"""The plugin whose margin charts draw bands."""

GROUPS_SAFE: Final = "=&~*,"
"""Characters of `format_groups` that need no encoding in a path, besides those that never do."""

ALL_RUNS: Final = "all runs"
"""Name of the only group where runs are grouped by nothing."""

_MISSING: Final = "missing"
_PLAIN: Final = re.compile(r"[^\W\d][\w./:@%+-]*")
"""Texts that are no number, and need no quotes in the name of a group."""

_WORDS: Final = frozenset({"true", "false", "nan", "inf", _MISSING})
_METADATA: Final = SummaryMetadata(
    plugin_data=SummaryMetadata.PluginData(plugin_name=SCALARS),
    data_class=DataClass.SCALAR,  # type: ignore[arg-type] # the numbers are the same
).SerializeToString()


@dataclass(frozen=True, slots=True)
class Band:
    """A band around the mean: its title, and the endings of the tags of its bounds."""

    title: str
    lower: str
    upper: str


BANDS: Final = (
    Band("Mean ± standard deviation", " · mean - std", " · mean + std"),
    Band("Mean, minimum and maximum", " · min", " · max"),
)
"""Bands by which margin charts show a group; listings of scalars do not name these tags."""


_ENDINGS: Final = tuple(ending for band in BANDS for ending in (band.lower, band.upper))


@dataclass(frozen=True, slots=True)
class GroupsQuery:
    """Choice of runs and of what they are grouped by; `columns` as in `GroupBy`."""

    columns: tuple[str, ...] = ()
    where: str = ""
    pattern: str | None = None


def format_groups(query: GroupsQuery) -> str:
    """Return the path segment that names the groups: a query in which `~` is for `%`.

    A slash, also an encoded one, would end the segment.
    """
    pairs = [*(("group", name) for name in query.columns), ("where", query.where)]
    if query.pattern is not None:
        pairs.append(("pattern", query.pattern))
    text = urlencode([pair for pair in pairs if pair[1]], quote_via=quote, safe="*,")
    return text.replace("~", "%7E").replace("%", "~") or "all"


def groups_address(ids: Sequence[ExperimentId], query: GroupsQuery) -> str:
    """Return the address of TensorBoard's page with the groups of runs of some experiments."""
    named = ",".join(f"{number}:{id_}" for number, id_ in enumerate(ids, 1))
    return f"/compare/{named}/groups/{format_groups(query)}/"


def parse_groups(text: str) -> GroupsQuery:
    """Return the query of a path segment. Raises MalformedRequest for one with other fields."""
    fields = {} if text == "all" else parse_qs(text.replace("~", "%"), keep_blank_values=True)
    where, pattern = fields.get("where", [""]), fields.get("pattern", [None])
    if not fields.keys() <= {"group", "where", "pattern"} or len(where) > 1 or len(pattern) > 1:
        raise MalformedRequest(
            f"{unquote(text[:200])!r} names no groups: write group=COLUMN, where=FILTER and "
            "pattern=EXPRESSION with & between, and ~ for each % of their encoding; or 'all'"
        )
    return GroupsQuery(
        tuple(fields.get("group", ())),
        where[0][: FILTER_CHARS_MAX + 1],
        pattern[0],
    )


@dataclass(frozen=True, slots=True)
class GroupedReader(ComparisonReader):
    """The source whose runs are groups of the runs of some experiments; `query` has the groups.

    Each call reads the runs as they are then. Readers of share links have groups of what the link
    shows. Raises as `group_runs` and `select_of_readers`.
    """

    query: GroupsQuery

    @property
    def session_readers(self) -> Mapping[str, ExperimentReader]:
        """Return nothing: hyperparameters are those of runs, not of groups."""
        return {}

    def list_kinds(self) -> list[tuple[str, DataClass]]:
        """Return the kinds of series of groups."""
        return [(CUSTOM_SCALARS, DataClass.TENSOR), KIND]

    def list_runs(self) -> list[Run]:
        """Return the groups, those with the earliest run first: a new one then comes last."""
        groups = self._open()
        return [Run(name, start) for name, _, start in groups.list_named(groups.list_tags())]

    def list_series(self, selection: Selection) -> list[Series]:  # noqa: ARG002 - as its base
        """Return nothing, for any selection: nothing of a group is stored."""
        return []

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """Return the metrics of each group, without the tags of its bands."""
        if KIND not in kinds:
            return []
        groups = self._open()
        tags = groups.list_tags()
        return [
            TagGroup(name, SCALARS, DataClass.SCALAR, _METADATA, of_group, (0,) * len(of_group))
            for name, group, _ in groups.list_named(tags)
            if (of_group := tuple(tags[group]))
        ]

    def list_tags(self, run: str) -> list[str]:
        """Return the tags of a group, with those of its bands."""
        metrics = [
            metric
            for group in self.list_tag_groups([KIND])
            if group.run == run
            for metric in group.tags
        ]
        return [metric + ending for metric in metrics for ending in ("", *_ENDINGS)]

    def read_scalars(self, selection: Selection, downsample: int) -> Samples[ScalarSample]:
        """Return the selected curves, at most `downsample` steps of each at equal distances."""
        groups = self._open()
        wanted = [
            (name, group)
            for name, group, _ in groups.list_named(groups.list_tags())
            if selection.runs is None or name in selection.runs
        ]
        if selection.plugin not in (None, SCALARS):
            return []
        metrics = sorted(groups.chosen.known.metrics)
        tags = _resolve_tags(metrics, selection.tags)
        return [
            sample
            for metric, fields in tags.items()
            for sample in self._read_metric(groups, metric, fields, wanted, downsample)
        ]

    def _open(self) -> _Groups:
        chosen = select_of_readers(list(self.readers.values()), self.query.where)
        rows = np.flatnonzero(chosen.selected)
        group_by = GroupBy(self.query.columns, self.query.pattern)
        return _Groups(chosen, group_runs(chosen.runs, chosen.known, rows, group_by))

    def _read_metric(
        self,
        groups: _Groups,
        metric: str,
        fields: Mapping[str, str],
        wanted: Collection[tuple[str, int]],
        downsample: int,
    ) -> Iterator[tuple[Series, ScalarSample]]:
        present, of_metric = restrict_groups(
            groups.chosen, groups.groups, metric, [group for _, group in wanted]
        )
        if not present:
            return
        steps_max = min(downsample, max(1, CURVE_STEPS_MAX // len(of_metric.keys)))
        query = CurvesQuery(metric, steps_max=steps_max)
        plan = plan_groups(groups.chosen, of_metric, query)
        names = {group: name for name, group in wanted}
        scan = scan_of_readers(self.readers.values())
        for group, curve in zip(present, compute_curves(scan, plan, has_times=True), strict=True):
            if not curve.total:  # deleted meanwhile
                continue
            for tag, field in fields.items():
                yield _make_sample(names[group], tag, curve, field)


def scan_of_readers(readers: Iterable[ExperimentReader]) -> Scan:
    """Return what reads points of experiments, those of each by its reader's grant."""
    by_id = {reader.grant.experiment_id: reader for reader in readers}

    def scan(experiment_id: ExperimentId, ids: list[int]) -> Iterator[SeriesPoints]:
        reader = by_id[experiment_id]
        reader.cancellation.check()
        with (
            reader.database.snapshot(reader.grant) as db,
            reader.cancellation.cancellable(lambda: reader.database.cancel(db)),
        ):
            yield from scan_scalars(db, experiment_id, ids)

    return scan


@dataclass(frozen=True, slots=True)
class _Groups:
    """The selected runs, and their groups."""

    chosen: SelectedRuns
    groups: RunGroups

    def list_named(self, tags: Sequence[Sequence[str]]) -> list[tuple[str, int, float | None]]:
        """Return name, index and start of each group that has scalars: by start, then first run.

        `tags` are those of `list_tags`.
        """
        starts = np.full(len(self.groups.keys), np.inf)
        firsts = np.unique(self.groups.codes, return_index=True)[1]
        parts = self.chosen.runs.parts
        begun = np.concatenate([np.empty(0), *(part.start_times for part in parts)])
        np.fmin.at(starts, self.groups.codes, begun[self.groups.rows])
        return [
            (
                format_key(self.groups.names, self.groups.keys[group]),
                group,
                float(starts[group]) if np.isfinite(starts[group]) else None,
            )
            for group in np.lexsort((firsts, starts)).tolist()
            if tags[group]
        ]

    def list_tags(self) -> list[list[str]]:
        """Return the metrics of each group, in code point order."""
        tags: list[list[str]] = [[] for _ in self.groups.keys]
        for metric in sorted(self.chosen.known.metrics):
            codes = self.groups.codes[np.isin(self.groups.rows, select_rows(self.chosen, metric))]
            for group in np.unique(codes).tolist():
                tags[group].append(metric)
        return tags


def format_key(names: Collection[str], key: Collection[HparamValue | None]) -> str:
    """Return the name of a group: different for different values, also 1 and "1"."""
    pairs = (f"{name}={format_value(value)}" for name, value in zip(names, key, strict=True))
    return ", ".join(pairs) or ALL_RUNS


def format_value(value: HparamValue | None) -> str:
    """Return a value as it is in the name of a group."""
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _resolve_tags(
    metrics: Collection[str], tags: Collection[str] | None
) -> dict[str, dict[str, str]]:
    """Return for each metric the field of its curve that each of the tags shows; None: the mean."""
    if tags is None:
        return {metric: {metric: ""} for metric in metrics}
    known = frozenset(metrics)
    resolved: dict[str, dict[str, str]] = {}
    for tag in sorted(tags):
        if tag in known:
            resolved.setdefault(tag, {})[tag] = ""
            continue
        for ending in _ENDINGS:
            if tag.endswith(ending) and (metric := tag.removesuffix(ending)) in known:
                resolved.setdefault(metric, {})[tag] = ending
    return resolved


def _read_field(spread: Spread, ending: str) -> Float64s:
    """Return the mean, or a bound of a band; of a single run, bounds are its values."""
    deviation = np.where(spread.counts == 1, 0.0, spread.std)
    fields = (spread.mean - deviation, spread.mean + deviation, spread.min, spread.max)
    return fields[_ENDINGS.index(ending)] if ending else spread.mean


def _make_sample(run: str, tag: str, curve: GroupCurve, ending: str) -> tuple[Series, ScalarSample]:
    steps, values = curve.spread.steps, _read_field(curve.spread, ending)
    times = np.zeros(len(steps)) if curve.wall_times is None else curve.wall_times
    ends = [(int(steps[at]), float(times[at]), float(values[at])) for at in (0, -1)]
    series = Series(
        0,
        0,
        run,
        tag,
        SCALARS,
        DataClass.SCALAR,
        _METADATA,
        curve.total,
        True,
        0,
        0,
        *ends[0],
        *ends[1],
        float(times.max(initial=0.0)),
    )
    return series, ScalarSample(steps, times, values, curve.total)
