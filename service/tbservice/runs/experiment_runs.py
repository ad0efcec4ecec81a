"""The runs of one experiment with what the table shows of them, cached per worker by version."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.experiment_values import UploadStatus
from tbservice.hparams.owners import find_owner, find_root
from tbservice.hparams.record_reader import read_ends, read_records
from tbservice.hparams.session_table import HPARAMS_RUNNING_SECONDS_MAX, StoredStart
from tbservice.reading.version_cache import VersionCache
from tbservice.runs import run_values
from tbservice.runs.run_values import RunValues
from tbservice.runs.tables import run_origins
from tbservice.series import summary_scan
from tbservice.series.tables import hparams_rows, summary_rows
from tbservice.series.tables.summary_rows import SummaryColumns
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Float64s, Int64s
from tbwire.hparams import HparamValue, SessionEnd, Status

RUNS_CACHE_BYTES: Final = 256 * limits.MIB
"""Bytes of runs that one worker caches, as estimated."""

SUMMARY_POINTS_MAX: Final = 500_000
"""Points that one request reads to compute summaries that are not stored yet."""

METRIC_FIELDS: Final = {
    "last": "last",
    "min": "min",
    "max": "max",
    "last_step": "last_step",
    "min_step": "min_step",
    "max_step": "max_step",
    "not_finite": "not_finite",
    "points": "count",
}
"""Suffixes of a metric's columns, and the arrays with their values."""

TAG_END: Final = "\n"
"""Between the tags of a run in a column: no tag has it."""

_OF_SUMMARY: Final = frozenset(METRIC_FIELDS) - {"last", "last_step", "points"}

_STATUSES: Final = ("success", "failure", "running", "unknown")
_STATUS_CODES: Final = {Status.STATUS_SUCCESS: 0, Status.STATUS_FAILURE: 1}
_ENDED_CODES: Final = {
    UploadStatus.FINISHED: 0,
    UploadStatus.FAILED: 1,
    UploadStatus.KILLED: 1,
}
_UNKNOWN: Final = 3
_RUNNING: Final = 2
_RUN_BYTES: Final = 500
_SERIES_BYTES: Final = 150


@dataclass(slots=True)
class ExperimentRuns:
    """The runs of an experiment, by id; only what is computed of them is added later.

    `starts` has the session that each run belongs to, `tags` what people gave to some rows.
    `series` has, by tag, the row of each run in `series_ids` and `fields`, -1 for none. `pending`
    counts series without a summary: min and max are missing.
    """

    run_ids: Int64s
    names: list[str]
    starts: list[StoredStart | None]
    end_codes: Int64s
    newest: Float64s
    start_times: Float64s
    tags: Mapping[int, Sequence[str]]
    series: Mapping[str, Int64s]
    series_ids: Int64s
    fields: Mapping[str, Float64s]
    pending: int = 0
    _columns: dict[str, RunValues] = field(default_factory=dict)
    _hparams: Counter[str] | None = None
    _metrics: Counter[str] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def size(self) -> int:
        """Bytes, estimated."""
        return _RUN_BYTES * (len(self) + 1) + _SERIES_BYTES * len(self.fields["last"])

    def count_hparams(self) -> Counter[str]:
        """Return how many runs have each hyperparameter."""
        if self._hparams is None:
            of_names = Counter(start.names for start in self.starts if start is not None)
            counts: Counter[str] = Counter()
            for names, count in of_names.items():
                counts.update(dict.fromkeys(names.names, count))
            self._hparams = counts
        return self._hparams

    def count_metrics(self) -> Counter[str]:
        """Return how many runs have each scalar tag."""
        if self._metrics is None:
            counts = {tag: int((rows >= 0).sum()) for tag, rows in self.series.items()}
            self._metrics = Counter(counts)
        return self._metrics

    def hparam(self, name: str) -> RunValues:
        """Return the values of a hyperparameter, of the session that each run belongs to."""
        key = f"hparam.{name}"
        if key not in self._columns:
            self._columns[key] = run_values.of_objects(
                self.hparam_of(row, name) for row in range(len(self))
            )
        return self._columns[key]

    def hparam_of(self, row: int, name: str) -> HparamValue | None:
        """Return one run's value of a hyperparameter; None for none."""
        start = self.starts[row]
        if start is None:
            return None
        position = start.names.positions.get(name)
        return None if position is None else start.values[position]

    def list_hparams(self, rows: Int64s) -> set[str]:
        """Return the hyperparameters that some of these runs have."""
        starts = [self.starts[row] for row in rows.tolist()]
        of_names = {id(each.names): each.names for each in starts if each is not None}
        return {name for names in of_names.values() for name in names.names}

    def metric_of(self, row: int, tag: str, name: str) -> float | None:
        """Return one run's field of METRIC_FIELDS of a scalar tag; None for none."""
        rows = self.series.get(tag)
        index = -1 if rows is None else int(rows[row])
        if index < 0 or (name in _OF_SUMMARY and self.fields["not_finite"][index] < 0):
            return None
        number = float(self.fields[METRIC_FIELDS[name]][index])
        has_finite = not math.isnan(self.fields["min"][index])
        return number if has_finite or not name.startswith(("min", "max")) else None

    def metric(self, tag: str, name: str) -> RunValues:
        """Return a field of METRIC_FIELDS of a scalar tag."""
        rows = self.series.get(tag)
        if rows is None or not len(self.fields["last"]):
            return run_values.of_numbers(np.full(len(self), np.nan), np.zeros(len(self), bool))
        numbers = self.fields[METRIC_FIELDS[name]][rows]
        has_value = rows >= 0
        if name in _OF_SUMMARY:
            has_value &= self.fields["not_finite"][rows] >= 0
        if name.startswith(("min", "max")):
            has_value &= ~np.isnan(self.fields["min"][rows])
        return run_values.of_numbers(numbers, has_value)

    def run_names(self) -> RunValues:
        """Return the names of the runs."""
        return run_values.of_codes(np.arange(len(self)), self.names)

    def all_tags(self, of_experiment: Sequence[str]) -> RunValues:
        """Return the tags of each run and its experiment, as lines of one text."""
        common = _join_tags(of_experiment, ())
        if not self.tags:
            return run_values.of_codes(np.full(len(self), 0 if common else -1), [common])
        return run_values.of_objects(
            (_join_tags(of_experiment, self.tags[row]) if row in self.tags else common) or None
            for row in range(len(self))
        )

    def statuses(self, now: float, training: UploadStatus | None) -> RunValues:
        """Return how each run ended: as its session says, else as the experiment's upload does.

        Without either, a run is running while its data are new.
        """
        is_new = now - self.newest < HPARAMS_RUNNING_SECONDS_MAX
        if training is None or training is UploadStatus.RUNNING:
            others: Int64s = np.where(is_new, _RUNNING, _UNKNOWN)
        else:
            others = np.full(len(self), _ENDED_CODES.get(training, _UNKNOWN))
        codes = np.where(self.end_codes >= 0, self.end_codes, others)
        return run_values.of_codes(codes, _STATUSES)

    def started(self) -> RunValues:
        """Return the wall time in seconds at which each run began."""
        return run_values.of_numbers(self.start_times, ~np.isnan(self.start_times))

    def durations(self) -> RunValues:
        """Return the seconds from the start of each run to its newest point."""
        seconds = self.newest - self.start_times
        return run_values.of_numbers(seconds, np.isfinite(seconds))


def _join_tags(of_experiment: Sequence[str], of_run: Sequence[str]) -> str:
    """Return tags as lines; one that both have, in whatever case, is that of the experiment."""
    by_key = {tag.casefold(): tag for tag in [*of_run, *of_experiment]}
    return TAG_END.join(by_key[key] for key in sorted(by_key))


RUNS: Final = VersionCache[ReadGrant, ExperimentRuns](RUNS_CACHE_BYTES, lambda each: each.size)
"""The runs of the experiments that were read last, by this worker."""


def read_runs(db: Connection, grant: ReadGrant, version: str, points_max: int) -> ExperimentRuns:
    """Return the runs of an experiment, the cached ones if its data are as they were.

    Args:
        db: A snapshot.
        grant: Grant on the experiment: what it shows is read.
        version: A text that changes with its data.
        points_max: Points that are read to compute unknown summaries; others remain pending.
    """
    key = replace(grant, user_id=None)  # people who see the same share it
    cached = RUNS.find(key, version)
    if cached is not None:
        return cached
    runs = _read(db, grant, points_max)
    if not runs.pending:
        RUNS.put(key, runs, version)
    return runs


def _read(db: Connection, grant: ReadGrant, points_max: int) -> ExperimentRuns:
    records = read_records(db, grant)
    is_view = grant.view is not None
    columns = summary_rows.list_summaries(db, grant.experiment_id, is_view=is_view)
    pending = _fill_unknown(db, grant, columns, points_max)
    is_members = grant.link is None and not grant.is_stranger
    by_id = run_origins.list_runs(db, grant.experiment_id, with_tags=is_members)
    tag_ids = np.unique(columns.tag_ids)
    tags = hparams_rows.list_tag_names(db, grant.experiment_id, tag_ids)

    run_ids = np.sort(np.fromiter(records.run_names, np.int64, len(records.run_names)))
    names = [records.run_names[run_id] for run_id in run_ids.tolist()]
    listed = [by_id.get(run_id, (None, [])) for run_id in run_ids.tolist()]
    owners = _find_owners(names, run_ids, records.starts, records.run_names)
    end_codes = _find_ends(db, grant, run_ids, owners, records.wall_times)
    positions = np.searchsorted(run_ids, columns.run_ids)
    newest = np.full(len(names), -np.inf)
    np.maximum.at(newest, positions, columns.max_wall_times)
    by_tag = np.argsort(columns.tag_ids, kind="stable")
    ends = np.searchsorted(columns.tag_ids[by_tag], tag_ids, "right").tolist()
    rows_of = dict(zip(tag_ids.tolist(), np.split(by_tag, ends[:-1]), strict=True)) if ends else {}
    series = {}
    for tag_id, tag in tags.items():
        rows = rows_of[tag_id]
        series[tag] = np.full(len(names), -1)
        series[tag][positions[rows]] = rows
    return ExperimentRuns(
        run_ids,
        names,
        [None if owner is None else records.starts[owner] for owner in owners],
        end_codes,
        newest,
        np.array([start_time for start_time, _ in listed], np.float64),
        {row: given for row, (_, given) in enumerate(listed) if given},
        series,
        columns.series_ids,
        _make_fields(columns),
        pending,
    )


def _make_fields(columns: SummaryColumns) -> dict[str, Float64s]:
    fields = {
        "last": columns.last_values,
        "last_step": columns.last_steps,
        "count": columns.counts,
        **{
            name: columns.records[name]
            for name in ("min", "min_step", "max", "max_step", "not_finite")
        },
    }
    return {name: values.astype(np.float64) for name, values in fields.items()}


def _fill_unknown(
    db: Connection, grant: ReadGrant, columns: SummaryColumns, points_max: int
) -> int:
    """Compute unknown summaries in place, of the shortest series first; return how many remain."""
    unknown = np.flatnonzero(columns.records["not_finite"] < 0)
    unknown = unknown[np.argsort(columns.counts[unknown], kind="stable")]
    within = int(np.searchsorted(np.cumsum(columns.counts[unknown]), points_max, "right"))
    rows = unknown[:within]
    if len(rows):
        ids = columns.series_ids[rows].tolist()
        computed = summary_scan.compute(db, grant.experiment_id, ids)
        for row, series_id in zip(rows.tolist(), ids, strict=True):
            if series_id in computed:
                record = columns.records[row]
                for name, value in zip(
                    ("not_finite", "min_step", "min", "max_step", "max"),
                    computed[series_id],
                    strict=True,
                ):
                    record[name] = value
    return int((columns.records["not_finite"] < 0).sum())


def _find_owners(
    names: Sequence[str],
    run_ids: Int64s,
    starts: Mapping[int, StoredStart],
    run_names: Mapping[int, str],
) -> list[int | None]:
    """Return the run id of the session that each run belongs to: its own, or the nearest above."""
    sessions = {run_names[run_id]: run_id for run_id in starts}
    root = find_root(sessions)
    owners: list[int | None] = []
    for name, run_id in zip(names, run_ids.tolist(), strict=True):
        owner = name if run_id in starts else find_owner(name, sessions, root)
        owners.append(None if owner is None else sessions[owner])
    return owners


def _find_ends(
    db: Connection,
    grant: ReadGrant,
    run_ids: Int64s,
    owners: Sequence[int | None],
    start_times: Mapping[int, float],
) -> Int64s:
    """Return the position in _STATUSES of the end of each run's session; -1 without one.

    An end that is older than the start of its session is an earlier attempt's.
    """
    ends: dict[int, SessionEnd] = {
        run_id: end
        for run_id, end, wall_time in read_ends(db, grant, None)
        if wall_time >= start_times.get(run_id, -np.inf)
    }
    codes = np.full(len(run_ids), -1)
    for row, owner in enumerate(owners):
        end = ends.get(owner) if owner is not None else None
        if end is not None:
            codes[row] = _STATUS_CODES.get(end.status, _UNKNOWN)
    return codes
