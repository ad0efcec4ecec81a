"""Blobs, and which rows refer to objects."""
