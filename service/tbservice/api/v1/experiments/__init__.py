"""Routes for experiments, their tables and deleted runs."""
