"""`Workspace`: the experiments of a workspace, and the runs of all of them."""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Union

import numpy as np

from tbupload.config import check_token, find_access
from tbupload.console.terminal import write_line
from tbupload.http.experiment_calls import ExperimentCalls
from tbupload.http.retry import RetryPolicy
from tbupload.http.run_table import RunTableCalls, find_workspace_id
from tbupload.http.transport import Transport
from tbupload.notebook import data_frames
from tbupload.notebook.data_frames import Library, NullableColumn
from tbupload.notebook.experiment import Experiment

RETRY_TIMEOUT_SECONDS: Final = 60.0
"""How long a request is retried while the server does not respond."""

RunValue = Union[float, bool, str, None]

_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_INTEGERS: Final = {"steps": "step", "count": "count", "not_finite": "not_finite"}
_NUMBERS: Final = ("mean", "std", "stderr", "median", "min", "max")


def experiments(
    query: str = "", *, tag: str | Sequence[str] = (), limit: int | None = None
) -> list[Experiment]:
    """Return the experiments of the token's workspace; see `Workspace.experiments`."""
    return Workspace().experiments(query, tag=tag, limit=limit)


class Workspace:
    """A workspace on a tbhub server.

        workspace = Workspace()
        workspace.runs('lr < 0.01 and loss.min < 0.3', sort="loss.min")  # a DataFrame

    Methods raise `tbupload.errors.Refused` if the server rejects a request (for example a filter
    that cannot be parsed: the message says where), and `tbupload.errors.Unreachable` if it does
    not respond for 60 s.

    Args:
        workspace_id: its number; by default the workspace of the token.
        token: the token; by default the one in TBHUB_TOKEN or in the config file.
        server: the server's address; by default that of TBHUB_SERVER or of the config file.
        cacert: a PEM file of certificate authorities to trust.
    """

    def __init__(
        self,
        workspace_id: int | None = None,
        *,
        token: str | None = None,
        server: str | None = None,
        cacert: str | os.PathLike[str] | None = None,
    ) -> None:
        access = find_access(server, os.environ)
        if token is None:
            for warning in access.warnings:
                _warn(warning)
        self._token = access.token if token is None else check_token(token)
        self._cacert = None if cacert is None else Path(cacert)
        self._transport = Transport(
            access.server,
            self._token,
            self._cacert,
            RetryPolicy(RETRY_TIMEOUT_SECONDS),
            _warn,
        )
        self.workspace_id = workspace_id or find_workspace_id(self._transport)

    def __repr__(self) -> str:
        return f"Workspace({self._transport.server}, {self.workspace_id})"

    def experiments(
        self, query: str = "", *, tag: str | Sequence[str] = (), limit: int | None = None
    ) -> list[Experiment]:
        """Return the experiments, newest first.

        Args:
            query: words; each must begin a word of name, tags, description, notes, properties, or
                of who created it.
            tag: one or several tags of experiments, all of which they have.
            limit: experiments at most; all by default.
        """
        selection: dict[str, str | Sequence[str]] = {"tag": _listed(tag)} if tag else {}
        listed = ExperimentCalls(self._transport).list_experiments(query, selection=selection)
        server = self._transport.server
        return [
            Experiment(
                fields["experiment_id"], token=self._token, server=server, cacert=self._cacert
            )
            for fields in itertools.islice(listed, limit)
        ]

    def runs(
        self,
        where: str = "",
        *,
        sort: str | Sequence[str] = (),
        columns: Sequence[str] = (),
        limit: int | None = None,
        group_by: str | Sequence[str] = (),
        run_pattern: str | None = None,
        library: Library | None = None,
    ) -> Any:
        """Return the runs of all experiments as a DataFrame: a row each, with its values by column.

        Numbers that do not exist are NaN (null in polars); a column with values of several types is
        of texts, several tags are lines of one. With `group_by` or `run_pattern`, a row is a group:
        `runs` is the number of its runs, and each column has mean, sample standard deviation and
        number of values: loss.mean, .std, .count.

        Args:
            where: a filter, as `lr < 0.01 and optimizer = "adam" and loss.min < 0.3`.
            sort: columns to sort by, with `-` before one descending; newest experiments first.
            columns: the columns; by default those that most runs have.
            limit: runs at most; all by default.
            group_by: columns to group by: "*" means all hyperparameters, "-seed" all but seed.
            run_pattern: a regular expression (RE2), as r"^(.*)/seed": runs are grouped by what its
                group matches in their names.
            library: "pandas" or "polars"; by default whichever is installed.
        """
        name, _ = data_frames.load(library)  # fails before anything is read
        keys = _listed(sort)
        names: list[str] = []
        calls = RunTableCalls(self._transport, self.workspace_id)
        runs: list[dict[str, RunValue]] = []
        count_max = sys.maxsize if limit is None else max(limit, 1)
        for page in calls.read_pages(
            where,
            keys,
            columns,
            count_max=count_max,
            group_by=_listed(group_by),
            run_pattern=run_pattern,
        ):
            names = page["columns"]
            runs += page["runs"]
            if limit is not None and len(runs) >= limit:
                break
        rows = _restore_numbers(runs[:limit])
        return data_frames.make(
            {each: _column([row[each] for row in rows]) for each in names}, name
        )

    def curves(
        self,
        metric: str,
        group_by: str | Sequence[str] = (),
        where: str = "",
        *,
        run_pattern: str | None = None,
        quantiles: Sequence[float] = (),
        library: Library | None = None,
        **query: Any,
    ) -> Any:
        """Return mean and spread of a metric over groups of runs, at each step, as a DataFrame.

        Columns: those that runs are grouped by; step, count (runs that have a value there),
        not_finite (runs whose value is NaN or infinite), mean, std (sample standard deviation),
        stderr, median, min, max; and each quantile, as q0.9. A number that does not exist is NaN.
        A row is a group's step: a run counts from its first to its last step, interpolated.

        Args:
            metric: a scalar tag.
            group_by: columns to group by: "*" means all hyperparameters, "-seed" all but seed.
            where: a filter of the runs, as of `runs`.
            run_pattern: as of `runs`.
            quantiles: from 0 to 1.
            library: "pandas" or "polars"; by default whichever is installed.
            query: more parameters: downsample (steps of a group at most, 1,000), every, step_min,
                step_max.
        """
        name, _ = data_frames.load(library)  # fails before anything is read
        answer = RunTableCalls(self._transport, self.workspace_id).read_curves(
            metric,
            where,
            _listed(group_by),
            run_pattern,
            {"quantile": list(quantiles), **query},
        )
        return data_frames.make(_curve_columns(answer), name)

    def columns(self) -> dict[str, Any]:
        """Return the columns that runs have, by kind: run; with counts hparams, metrics, packages.

        A package is the column package.NAME.
        """
        calls = RunTableCalls(self._transport, self.workspace_id)
        page = next(calls.read_pages(columns=["run"], count_max=1, available=True))
        available: dict[str, Any] = page["available"]
        return available


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _restore_numbers(runs: list[dict[str, RunValue]]) -> list[dict[str, RunValue]]:
    """Return the runs with NaN and infinities as numbers, in columns that have no other texts."""
    texts = {
        name
        for run in runs
        for name, value in run.items()
        if isinstance(value, str) and value not in _NOT_FINITE
    }
    return [
        {
            name: _NOT_FINITE[value] if isinstance(value, str) and name not in texts else value
            for name, value in run.items()
        }
        for run in runs
    ]


def _warn(message: str) -> None:
    write_line(sys.stderr, f"tbupload: {message}")


def _curve_columns(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of all groups: their values, then the statistics, a row for each step.

    A value that runs are grouped by has the name `group.NAME` if a statistic has its own.
    """
    groups = answer["groups"]
    lengths = [len(group["steps"]) for group in groups]
    statistics = {
        label: _concatenate([group[name] for group in groups], np.int64)
        for name, label in _INTEGERS.items()
    }
    statistics.update(
        (name, _concatenate([group[name] for group in groups], np.float64)) for name in _NUMBERS
    )
    for quantile in groups[0]["quantiles"] if groups else ():
        arrays = [group["quantiles"][quantile] for group in groups]
        statistics[f"q{quantile}"] = _concatenate(arrays, np.float64)
    keys = {}
    for name in answer["columns"]:
        label = f"group.{name}" if name in statistics else name
        keys[label] = _repeat([group["group"][name] for group in groups], lengths)
    return {**keys, **statistics}


def _column(values: Sequence[Any]) -> Any:
    """Return a column of a DataFrame; values of several types as texts."""
    types = {type(value) for value in values if value is not None}
    if types == {int} and None not in values:
        return np.array(values, np.int64)
    if types <= {int, float}:
        return NullableColumn(values, float)
    if len(types) > 1:
        values = [None if value is None else str(value) for value in values]
    return NullableColumn(values, next(iter(types)) if len(types) == 1 else str)


def _repeat(values: list[Any], lengths: list[int]) -> Any:
    """Return the value of each group for each of its steps."""
    return _column([value for value, length in zip(values, lengths) for _ in range(length)])


def _concatenate(arrays: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.empty(0, dtype), *(np.array(each, dtype) for each in arrays)])
