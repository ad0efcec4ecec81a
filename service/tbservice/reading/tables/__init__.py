"""Reads over several tables of series: attempts, changes, digests, curves."""
