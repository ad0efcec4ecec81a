"""Comparisons: the page over several experiments."""
