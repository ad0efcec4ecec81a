"""Data of plugins other than points: hyperparameters of a run, files of the projector, tags."""
