"""Compare an experiment with the files of a log directory, series by series."""
