"""Pages of experiments: the list, one experiment, its runs."""
