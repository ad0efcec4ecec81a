"""Blob uploads in progress."""
