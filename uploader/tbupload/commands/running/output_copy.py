"""Copy what a command prints, at once and unchanged, and show it to somebody else as well."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable

READ_BYTES = 1 << 16
"""The size of a pipe: more is never there at once."""


class OutputCopy:
    """Copies pipes of a child to descriptors of this process, each in a thread.

    One that is slow to be read holds up the child as it would without the copy, and no other one.
    """

    def __init__(self) -> None:
        self._wake_reader, self._wake_writer = os.pipe()
        self._copies: list[_Copy] = []

    def start(self, source: int, target: int, feed: Callable[[bytes], None]) -> None:
        """Copy from a pipe to a descriptor, and call `feed` with each chunk, from now on."""
        copy = _Copy(source, target, feed, self._wake_reader)
        self._copies.append(copy)
        copy.start()

    def finish(self) -> None:
        """Wait until all is copied that the child has printed, which has ended.

        The pipes may stay open: a process that the child has left behind may hold them. What that
        prints is copied as long as this process lives.
        """
        os.close(self._wake_writer)
        for copy in self._copies:
            copy.is_drained.wait()


class _Copy(threading.Thread):
    """A copy of one pipe. `is_drained` is set once all that was in it at the wake-up is copied."""

    def __init__(
        self, source: int, target: int, feed: Callable[[bytes], None], wake_reader: int
    ) -> None:
        super().__init__(name=f"copy of {target}", daemon=True)
        self.is_drained = threading.Event()
        self._source = source
        self._target = target
        self._feed = feed
        self._wake_reader = wake_reader

    def run(self) -> None:
        """Copy until the pipe ends, or nobody reads the target."""
        try:
            self._copy_until_woken()
            rest = _count_readable(self._source)
            while rest > 0 and (count := self._copy_chunk(rest)):
                rest -= count
            self.is_drained.set()
            while self._copy_chunk(READ_BYTES):
                pass
        except OSError:  # of the target: nobody reads it, or its disk is full
            pass
        finally:
            # A child that prints more gets SIGPIPE, as it would from the target.
            os.close(self._source)
            self.is_drained.set()

    def _copy_until_woken(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._source in ready and not self._copy_chunk(READ_BYTES):
                return
            if self._wake_reader in ready:
                return

    def _copy_chunk(self, bytes_max: int) -> int:
        """Copy what is there, or wait for it; return its size, 0 at the end. Raise OSError."""
        chunk = os.read(self._source, bytes_max)
        self._feed(chunk)
        rest = memoryview(chunk)
        while rest:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:  # a terminal that another program has set so
                select.select([], [self._target], [])
        return len(chunk)


def _count_readable(descriptor: int) -> int:
    """Return how many bytes can be read at once."""
    import fcntl  # noqa: PLC0415 - not on Windows
    import termios  # noqa: PLC0415

    answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)
