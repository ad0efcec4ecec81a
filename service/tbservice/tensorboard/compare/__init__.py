"""Comparisons: the page over several experiments, and their merged HParams schemas."""
