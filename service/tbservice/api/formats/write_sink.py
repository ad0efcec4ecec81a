"""What a writer of files has written, taken away as it is written: a file that is never whole in memory."""

from __future__ import annotations


class WriteSink:
    """A file to write to, from which `take_written` takes what was written since."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Takes bytes of any buffer."""
        self._written.append(bytes(data))
        return len(data)

    def take_written(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self._written)
        self._written.clear()
        return taken

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """There is nothing to close."""
