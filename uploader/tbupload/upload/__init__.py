"""Uploading a log directory to an experiment: file states, segments, batches, scheduling."""
