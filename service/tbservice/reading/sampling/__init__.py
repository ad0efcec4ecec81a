"""Sampling of series: uniform, by rules that read all points, and of tensor and blob rows."""
