"""Records of an upload: machine, environment, end of the training, system metrics."""
