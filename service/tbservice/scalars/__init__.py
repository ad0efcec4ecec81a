"""Maintain scalar series: deduplicate, compact and scan them."""
