"""From columns of points to committed batches: scanning, cutting, sending, following."""
