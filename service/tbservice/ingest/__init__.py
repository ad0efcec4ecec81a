"""Commit uploads: decode, check, and write each batch exactly once."""
