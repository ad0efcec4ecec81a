"""What is recorded with an upload: machine, environment, end of the training, system metrics."""
