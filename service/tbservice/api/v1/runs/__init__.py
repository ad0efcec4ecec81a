"""Routes of the table of runs."""
