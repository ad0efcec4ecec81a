"""Experiments as pandas or polars DataFrames, whichever is installed.

from tbupload import Experiment

experiment = Experiment("https://tbhub.example.org/experiment/ID/")
losses = experiment.scalars(tag="loss")            # every point: run, tag, step, wall_time, value
best = losses.groupby("run", observed=True)["value"].min()
curves = experiment.scalars(tag=["loss", "accuracy"], pivot=True)  # one column per tag
sample = experiment.scalars(sampling="uniform", downsample=1000)  # 1,000 points per series
sessions = experiment.hparams()                    # one row per session: hyperparameters, metrics
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%tbhub`; IPython calls this for `%load_ext tbupload.notebook`."""
    from tbupload.notebook.magic import register  # noqa: PLC0415  # the package stays light

    register(shell)
