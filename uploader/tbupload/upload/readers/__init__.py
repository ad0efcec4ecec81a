"""Readers: processes, or threads, that read the backlog of an upload ahead of its requests."""
