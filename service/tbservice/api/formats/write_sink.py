"""A file object that collects what a writer writes, to be taken in chunks."""

from __future__ import annotations


class WriteSink:
    """A write-only file in memory; `take_written` returns and clears its content."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Append the bytes of a buffer."""
        self._written.append(bytes(data))
        return len(data)

    def take_written(self) -> bytes:
        """Return the bytes written since the previous call."""
        content = b"".join(self._written)
        self._written.clear()
        return content

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def close(self) -> None:
        """Do nothing: there is no underlying file."""
