"""Create, list, change and delete experiments, their runs and their series."""
