"""Read records that are too large to be held in memory."""
