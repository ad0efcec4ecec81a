"""Scalar series: deduplication, compaction and scans; the tables of all series."""
