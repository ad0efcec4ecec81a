"""`ExperimentFromDev` as TensorBoard had it for TensorBoard.dev: notebooks written for it need one changed import."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tbupload.notebook import data_frames
from tbupload.notebook.experiment import Experiment

_DIFFERENT_STEPS = (
    "pivoted DataFrame contains missing value(s): two time series have different sets of steps. "
    "Call get_scalars() with pivot=False, or Experiment.scalars(pivot=True), which leaves gaps"
)


class ExperimentFromDev:
    """An experiment's scalars as pandas DataFrames, under the names that `tensorboard.data.experimental` had.

    `experiment_id` is an id or a URL; `api_endpoint` the server, found as `tbupload` finds it by default.
    """

    def __init__(self, experiment_id: str, api_endpoint: str | None = None) -> None:
        self._experiment = Experiment(experiment_id, server=api_endpoint, library="pandas")

    def get_scalars(
        self,
        runs_filter: str | None = None,
        tags_filter: str | None = None,
        pivot: bool = False,
        include_wall_time: bool = False,
    ) -> Any:
        """A pandas.DataFrame of all scalars: run, tag, step, value, and wall_time if asked for.

        The filters are regular expressions that have to match a whole name. The rows stand by start of the run, tag
        and step. With `pivot`, a row a run and step: columns run, step, and one a tag, named by it, or ("value", tag)
        and ("wall_time", tag). Raises ValueError when two of the series have different sets of steps, ImportError
        without pandas.
        """
        data_frames.load("pandas")
        frame = self._read(_matcher(runs_filter), _matcher(tags_filter))
        if not include_wall_time:
            frame = frame.drop(columns="wall_time")
        return _pivot(frame) if pivot else frame

    def _read(self, is_run: Callable[[str], bool], is_tag: Callable[[str], bool]) -> Any:
        """The chosen points, long, in their order; runs and tags as plain texts."""
        _, pandas = data_frames.load("pandas")
        all_runs = self._experiment.list_runs_by_start()
        all_tags = sorted({tag for tags in self._experiment.tags.values() for tag in tags})
        runs, tags = list(filter(is_run, all_runs)), list(filter(is_tag, all_tags))
        # All of them are asked for without their names, which might be more than a request takes.
        found = self._experiment.scalars(
            run=runs if len(runs) < len(all_runs) else None,
            tag=tags if len(tags) < len(all_tags) else None,
            plugin="scalars",
        )
        places = [
            _positions(found[column].cat.categories, order)
            for column, order in (("run", runs), ("tag", tags))
        ]
        order = np.lexsort(
            (found["step"], places[1][found["tag"].cat.codes], places[0][found["run"].cat.codes])
        )
        frame = found.take(order).reset_index(drop=True)
        texts = {column: frame[column].astype(str).tolist() for column in ("run", "tag")}
        return pandas.DataFrame(
            {**texts, **{column: frame[column] for column in ("step", "value", "wall_time")}}
        )


def _positions(names: Iterable[str], order: Iterable[str]) -> Any:
    """Where each name stands in an order; behind all when it has come since."""
    known = {name: place for place, name in enumerate(order)}
    return np.array([known.get(name, len(known)) for name in names], np.int64)


def _matcher(expression: str | None) -> Callable[[str], bool]:
    if expression is None:
        return lambda _name: True
    pattern = re.compile(expression)
    return lambda name: pattern.fullmatch(name) is not None


def _pivot(frame: Any) -> Any:
    missing = int(np.count_nonzero(frame.isnull().to_numpy()))
    values = ["value", "wall_time"] if "wall_time" in frame.columns else "value"
    wide = frame.pivot_table(values=values, index=["run", "step"], columns="tag", dropna=False)
    if np.count_nonzero(wide.isnull().to_numpy()) > missing:
        raise ValueError(_DIFFERENT_STEPS)
    wide = wide.reset_index()
    wide.columns.names = [None for _ in wide.columns.names]
    return wide
