"""Pages of share links and tokens of an experiment."""
