"""Send a log directory to an experiment: batch, schedule, send, and follow."""
