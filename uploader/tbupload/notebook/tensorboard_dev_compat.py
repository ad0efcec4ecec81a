"""`ExperimentFromDev` of `tensorboard.data.experimental`, for notebooks of TensorBoard.dev.

TensorBoard removed the class with the service; such notebooks only need to change the import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tbupload.notebook import data_frames
from tbupload.notebook.experiment import Experiment

_DIFFERENT_STEPS = (
    "pivoted DataFrame contains missing value(s): two time series have different sets of steps. "
    "Call get_scalars() with pivot=False, or Experiment.scalars(pivot=True), which inserts nulls"
)


class ExperimentFromDev:
    """An experiment's scalars as pandas DataFrames, with the interface of TensorBoard.dev.

    New code should use `Experiment`.

    Args:
        experiment_id: the experiment's ID or URL.
        api_endpoint: the server's address; by default that of the URL, of TBHUB_SERVER or of the
            config file.
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
        """Return all scalars as a pandas.DataFrame with the columns run, tag, step and value.

        Rows are sorted by the start time of the run, then by tag and step.

        Args:
            runs_filter: regular expression that must match a run's complete name.
            tags_filter: regular expression that must match a tag's complete name.
            pivot: return one row per (run, step) and one column per tag; with wall times, the
                columns are ("value", tag) and ("wall_time", tag).
            include_wall_time: add the column wall_time, in seconds since the epoch.

        Raises:
            ValueError: `pivot` is set, and two series have different sets of steps.
            ImportError: pandas is not installed.
        """
        data_frames.load("pandas")
        frame = self._read(_matcher(runs_filter), _matcher(tags_filter))
        if not include_wall_time:
            frame = frame.drop(columns="wall_time")
        return _pivot(frame) if pivot else frame

    def _read(self, is_run: Callable[[str], bool], is_tag: Callable[[str], bool]) -> Any:
        """Return the selected points in long form, sorted; runs and tags are strings."""
        _, pandas = data_frames.load("pandas")
        all_runs = self._experiment.list_runs_by_start()
        all_tags = sorted({tag for tags in self._experiment.tags.values() for tag in tags})
        runs, tags = list(filter(is_run, all_runs)), list(filter(is_tag, all_tags))

        # Omit the names if all are selected: together they may exceed the limit of a request.
        points = self._experiment.scalars(
            run=runs if len(runs) < len(all_runs) else None,
            tag=tags if len(tags) < len(all_tags) else None,
            plugin="scalars",
        )

        positions = [
            _positions(points[column].cat.categories, order)
            for column, order in (("run", runs), ("tag", tags))
        ]
        order = np.lexsort(
            (
                points["step"],
                positions[1][points["tag"].cat.codes],
                positions[0][points["run"].cat.codes],
            )
        )
        frame = points.take(order).reset_index(drop=True)
        texts = {column: frame[column].astype(str).tolist() for column in ("run", "tag")}
        return pandas.DataFrame(
            {**texts, **{column: frame[column] for column in ("step", "value", "wall_time")}}
        )


def _positions(names: Iterable[str], order: Iterable[str]) -> Any:
    """Return each name's index in `order`; one that was created since then sorts last."""
    positions = {name: index for index, name in enumerate(order)}
    return np.array([positions.get(name, len(positions)) for name in names], np.int64)


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
