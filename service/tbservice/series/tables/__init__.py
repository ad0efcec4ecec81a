"""The tables of runs, tags, series, their points and upload cursors."""
