"""An experiment as DataFrames, of pandas or polars, whichever is installed.

from tbupload import Experiment

experiment = Experiment("https://tbhub.example.org/experiment/ID/")
losses = experiment.scalars(tag="loss")                            # every point: run, tag, step, wall_time, value
best = losses.groupby("run", observed=True)["value"].min()
curves = experiment.scalars(tag=["loss", "accuracy"], pivot=True)  # a row a run and step, a column a tag
thin = experiment.scalars(sampling="uniform", downsample=1000)     # 1,000 points of each series
sessions = experiment.hparams()                                    # a row a session: hyperparameters, last metrics
"""
