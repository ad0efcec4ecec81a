"""Create, list, update and delete experiments; delete their runs and series."""
