"""The readers of an upload: which files they read, what they have read, and when they end."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tbupload.console.texts import counted
from tbupload.events.multi_file_decode import FILES_MAX
from tbupload.upload.file_upload import FileUpload
from tbupload.upload.read_ahead import ReadAhead
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.readers.messages import (
    FileDropped,
    FileEnded,
    FilesToRead,
    FileToRead,
    FromReader,
    SegmentTaken,
    ToReader,
)
from tbupload.upload.readers.read_loop import ReadLoop
from tbupload.upload.segments import EncodedSegment

TASKS_MAX: Final = 4
"""Large files, or groups of small ones, that a reader reads in turns.

More than one, so that a batch contains segments of several runs.
"""

NAMED_FILES_MAX: Final = 3
"""Files that a message about a lost reader names."""

F_SETPIPE_SZ: Final = 1031
"""Command of fcntl(2), which the module `fcntl` names from Python 3.10 on."""

PIPE_BYTES: Final = 1 << 20
"""Size of the pipe from a reader: the most that a user may set by default."""

_MODULE: Final = "tbupload.upload.readers.process_main"
_PROGRAM: Final = (
    ["-P", "-m", _MODULE]
    if sys.version_info >= (3, 11)
    else ["-c", f"import sys; del sys.path[0]; from {_MODULE} import main; main()"]
)
"""A file in the working directory must not shadow a module that a reader imports."""


class _Received(NamedTuple):
    """A message, or None after the last one, and the reader it is from."""

    reader: Reader
    message: FromReader | None


class Reader(ABC):
    """A reader, and the files it was given that are not finished.

    The methods are called in the thread of the upload. A file is finished when it was read to its
    end and everything was taken, or when it was dropped.
    """

    name: str
    noun: str
    group_files_max: int

    def __init__(self) -> None:
        self.is_alive = True
        self.ready_bytes = 0
        self.files: dict[int, tuple[FileUpload, ReadAhead]] = {}
        self._tasks: list[set[int]] = []

    @property
    def task_count(self) -> int:
        """Return the number of tasks with unfinished files."""
        return len(self._tasks)

    def read(self, uploads: Sequence[FileUpload], numbers: Sequence[int]) -> None:
        """Begin to read files as one task; `prepare_read_ahead` of each has returned its start."""
        files = []
        for upload, number in zip(uploads, numbers):
            stream, offset = upload.read_ahead_start()
            ahead = ReadAhead(self, number, offset)
            self.files[number] = (upload, ahead)
            upload.attach(ahead)
            files.append(FileToRead(number, upload.path, upload.run, stream, offset))
        self._tasks.append(set(numbers))
        self.send(FilesToRead(files))

    def note_taken(self, number: int, segment: EncodedSegment) -> None:
        """Let the reader read further; a file whose last segment this was is finished."""
        self.ready_bytes -= segment.size
        self.send(SegmentTaken(number, segment.size))
        self._finish_if_done(number)

    def drop(self, number: int) -> None:
        """End reading a file, and forget it."""
        if number in self.files:
            self.send(FileDropped(number))
            self._finish(number)

    def handle(self, message: FromReader) -> None:
        """Store what the reader has read."""
        known = self.files.get(message.number)
        if isinstance(message, FileEnded):
            if known is not None:
                known[1].is_ended = True
                self._finish_if_done(message.number)
        elif known is not None:
            known[1].segments.append(message.segment)
            self.ready_bytes += message.segment.size
        else:
            # It was sent before the reader knew that its file was dropped.
            self.send(SegmentTaken(message.number, message.segment.size))

    def end_files(self) -> list[FileUpload]:
        """Record that nothing more comes; return the unfinished files."""
        self.is_alive = False
        unfinished = [upload for upload, ahead in self.files.values() if not ahead.is_ended]
        for number, (_, ahead) in list(self.files.items()):
            ahead.is_ended = True
            self._finish_if_done(number)
        return unfinished

    @abstractmethod
    def send(self, message: ToReader) -> None:
        """Send a message; does nothing if the reader has ended."""

    @abstractmethod
    def close(self) -> None:
        """End the reader, and wait for that."""

    @abstractmethod
    def end_text(self) -> str:
        """Return how the reader has ended."""

    def _finish_if_done(self, number: int) -> None:
        known = self.files.get(number)
        if known is not None and known[1].is_ended and not known[1].segments:
            self._finish(number)

    def _finish(self, number: int) -> None:
        del self.files[number]
        for task in self._tasks:
            task.discard(number)
        self._tasks = [task for task in self._tasks if task]


class ReaderProcess(Reader):
    """A reader that is a process of its own, for files that the processor takes long to decode."""

    noun = "process"
    group_files_max = FILES_MAX

    def __init__(
        self, options: ReadOptions, filters_digest: bytes, deliver: Callable[[_Received], None]
    ) -> None:
        super().__init__()
        # The same on every system, and it inherits no threads: not multiprocessing, which forks on
        # some and starts a further process on others. In a session of its own, the process does
        # not receive the terminal's Ctrl-C.
        new_session: dict[str, Any] = {"start_new_session": True}
        if sys.platform == "win32":
            new_session = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, *_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **new_session,
        )
        self.name = f"reader process {self._process.pid}"
        _enlarge(self._process.stdout)
        self.send((replace(options, warn=print), filters_digest))
        self._thread = threading.Thread(
            target=self._receive, args=(deliver,), name=self.name, daemon=True
        )
        self._thread.start()

    def send(self, message: object) -> None:
        """Send a message; does nothing if the process has ended."""
        # A process that has ended closes its stdout as well, and that is reported.
        with contextlib.suppress(OSError, ValueError):
            pickle.dump(message, self._stdin, pickle.HIGHEST_PROTOCOL)
            self._stdin.flush()

    def close(self) -> None:
        """End the process, also within a long read."""
        self.is_alive = False
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def end_text(self) -> str:
        """Return how the process has ended."""
        code = self._process.wait()
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    def _receive(self, deliver: Callable[[_Received], None]) -> None:
        output = self._process.stdout
        assert output is not None  # noqa: S101 - for the type checker
        with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError), output:
            while True:
                message: Any = pickle.load(output)  # noqa: S301 - from our own process
                deliver(_Received(self, message))
        deliver(_Received(self, None))


def _enlarge(pipe: Any) -> None:
    """Let a pipe contain a segment: fewer switches between the processes."""
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - not on Windows

        with contextlib.suppress(OSError):  # over the user's limit
            fcntl.fcntl(pipe, F_SETPIPE_SZ, PIPE_BYTES)


class ReaderThread(Reader):
    """A reader that is a thread, for files on storage that answers slowly.

    It decodes few files together: it waits for each of them in turn.
    """

    noun = "thread"
    group_files_max = 8

    def __init__(
        self, options: ReadOptions, filters_digest: bytes, deliver: Callable[[_Received], None]
    ) -> None:
        super().__init__()
        self._error: Exception | None = None
        self._loop = ReadLoop(
            options, filters_digest, lambda message: deliver(_Received(self, message))
        )
        self._thread = threading.Thread(target=self._run, args=(deliver,), daemon=True)
        self.name = f"reading {self._thread.name}"
        self._thread.start()

    def send(self, message: ToReader) -> None:
        """Send a message; does nothing if the thread has ended."""
        self._loop.inbox.put(message)

    def close(self) -> None:
        """End the thread after the request it waits for, without waiting for that."""
        self.is_alive = False
        self._loop.inbox.put(None)

    def end_text(self) -> str:
        """Return how the thread has ended."""
        return f"ended: {self._error!r}"

    def _run(self, deliver: Callable[[_Received], None]) -> None:
        try:
            self._loop.run()
        except Exception as error:  # noqa: BLE001 - as for a process: the upload reads by itself
            self._error = error
        deliver(_Received(self, None))


class ReaderPool:
    """The readers of one upload.

    Every method is called in the thread of the upload. `arrival` is done when there is something
    for `receive`.

    Args:
        count: How many.
        kind: Processes or threads.
        options: How files are read.
        filters_digest: Digest of the filters, a part of every stream.
        warn: Called with a sentence when a reader has ended too early.
    """

    def __init__(
        self,
        count: int,
        kind: type[ReaderProcess | ReaderThread],
        options: ReadOptions,
        filters_digest: bytes,
        warn: Callable[[str], None],
    ) -> None:
        self.arrival: Future[None] = Future()
        self.group_files_max = kind.group_files_max
        self._warn = warn
        self._lock = threading.Lock()
        self._received: queue.SimpleQueue[_Received] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._readers: list[Reader] = []
        for _ in range(count):
            self._readers.append(kind(options, filters_digest, self._deliver))

    @property
    def has_room(self) -> bool:
        """Return whether a reader can be given another task."""
        return any(each.is_alive and each.task_count < TASKS_MAX for each in self._readers)

    @property
    def is_alive(self) -> bool:
        """Return whether there is a reader."""
        return any(each.is_alive for each in self._readers)

    @property
    def ready_bytes(self) -> int:
        """Return the size of the segments that were read and not taken yet."""
        return sum(each.ready_bytes for each in self._readers)

    def read(self, uploads: Sequence[FileUpload]) -> None:
        """Have the reader with the fewest tasks read these files; only if `has_room`."""
        reader = min(
            (each for each in self._readers if each.is_alive), key=lambda each: each.task_count
        )
        reader.read(uploads, [next(self._numbers) for _ in uploads])

    def receive(self) -> bool:
        """Store what has arrived; return whether that was anything."""
        with self._lock:
            self.arrival = Future()
        has_arrived = False
        while not self._received.empty():
            reader, message = self._received.get()
            has_arrived = True
            if message is not None:
                reader.handle(message)
            elif reader.is_alive:
                self._report_end(reader)
        return has_arrived

    def close(self) -> None:
        """End all readers; the upload reads on by itself what they have not read."""
        for reader in self._readers:
            reader.close()
        self.receive()
        for reader in self._readers:
            reader.end_files()

    def _deliver(self, received: _Received) -> None:
        self._received.put(received)
        with self._lock:
            if not self.arrival.done():
                self.arrival.set_result(None)

    def _report_end(self, reader: Reader) -> None:
        paths = [str(upload.path) for upload in reader.end_files()]
        named = ", ".join(paths[:NAMED_FILES_MAX])
        more = len(paths) - NAMED_FILES_MAX
        rest = f" and {counted(more, 'other file')}" if more > 0 else ""
        left = f"read on without it: {named}{rest}" if paths else "it had read all of its files"
        self._warn(f"{reader.name} {reader.end_text()}; {left}")
