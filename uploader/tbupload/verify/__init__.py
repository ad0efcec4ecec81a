"""Proving that an experiment holds what a logdir's files say, series by series."""
