"""Event files: from bytes on disk to columns of points."""
