"""Serve the application: workers, signals, sockets, logs and memory of a process."""
