"""What keeps the server from running, as one line that says what to do."""

from __future__ import annotations


class CannotRun(Exception):
    """The server cannot be started, or cannot go on. The message is one line for the person who started it."""
