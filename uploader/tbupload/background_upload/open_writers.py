"""Flush the open event writers of this process, so that the uploader finds their data in the files.

A framework that is not loaded is not imported: nothing of it can be open. Writers of PyTorch,
TensorBoard and tensorboardX are found by their threads, which also live on when a writer was
dropped without being closed; those of TensorFlow and clu are searched among all objects.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

FLUSH_SECONDS_MAX: Final = 5.0
"""How long the script waits for its writers; usually it takes milliseconds."""

BACKGROUND_SECONDS_MAX: Final = 60.0
"""How long flushing continues after that, in the background."""

DRAIN_POLL_SECONDS: Final = 0.002

TAKEN_EVENT_SECONDS: Final = 0.02
"""How long tensorboardX may need to begin to write the last event, after it left the queue."""


def flush_open_writers(seconds: float = FLUSH_SECONDS_MAX) -> list[str]:
    """Flush them within this time; return a sentence for each that could not be flushed."""
    now = time.monotonic()
    problems: list[str] = []
    thread = threading.Thread(
        target=_flush_all,
        args=(now + seconds + BACKGROUND_SECONDS_MAX, problems),
        name="tbupload flush",
        daemon=True,
    )
    try:
        thread.start()
    except RuntimeError:  # while the interpreter exits, as of Python 3.12
        _flush_all(now + seconds, problems)
        return problems
    thread.join(seconds)
    if thread.is_alive():
        problems.append(f"writers were not flushed within {seconds:g} s")
    return list(problems)


def _flush_all(deadline: float, problems: list[str]) -> None:
    for kind, flush in _flush_calls(deadline):
        try:
            flush()
        except Exception as error:  # noqa: BLE001  # of any writer: the others are flushed too
            problems.append(f"a writer of {kind} could not be flushed: {error!r}")


def _flush_calls(deadline: float) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a framework's name and a function for each writer; those that hold others first."""
    for writer in _objects("clu.metric_writers", "AsyncWriter"):
        yield "clu", functools.partial(_drain_clu, writer, deadline)

    tensorflow = sys.modules.get("tensorflow")
    with contextlib.suppress(AttributeError):  # a module that is still being imported
        if tensorflow is not None and tensorflow.executing_eagerly():
            module = "tensorflow.python.ops.summary_ops_v2"
            for writer in _objects(module, "_ResourceSummaryWriter"):
                yield "TensorFlow", writer.flush
    for writer in _objects("tensorflow.python.summary.writer.event_file_writer", "EventFileWriter"):
        yield "TensorFlow", writer.flush

    module = "tensorboard.summary.writer.event_file_writer"
    for thread in _threads(module, "_AsyncWriterThread"):
        yield "TensorBoard", functools.partial(_flush_tensorboard, thread, deadline)
    for thread in _threads("tensorboardX.event_file_writer", "_EventLoggerThread"):
        yield "tensorboardX", functools.partial(_flush_tensorboardx, thread, deadline)


def _drain_clu(writer: Any, deadline: float) -> None:
    """Wait for what is queued; the writer below is found as one of TensorFlow or TensorBoard.

    `AsyncWriter.flush` would make the script's own calls fail meanwhile: it replaces the pool.
    """
    try:
        last = writer._pool._pool.submit(lambda: None)  # noqa: SLF001  # no public way
    except RuntimeError:  # closed, or the interpreter exits: nothing is queued any more
        return
    last.result(max(0.0, deadline - time.monotonic()))


def _flush_tensorboard(thread: Any, deadline: float) -> None:
    """Flush as `EventFileWriter.flush` does, which would wait without a limit."""
    _wait_until(lambda: thread._queue.unfinished_tasks == 0, deadline)  # noqa: SLF001  # no public way
    thread._record_writer.flush()  # noqa: SLF001  # no public way


def _flush_tensorboardx(thread: Any, deadline: float) -> None:
    """Flush also what is queued, which `EventFileWriter.flush` does not."""
    queue = thread._queue  # noqa: SLF001  # no public way
    try:
        queue.qsize()
        is_empty: Callable[[], bool] = lambda: queue.qsize() == 0  # noqa: E731  # shorter
    except NotImplementedError:  # macOS
        is_empty = queue.empty
    _wait_until(is_empty, deadline)
    time.sleep(TAKEN_EVENT_SECONDS)
    thread._record_writer.flush()  # noqa: SLF001  # no public way


def _wait_until(is_true: Callable[[], bool], deadline: float) -> None:
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("its queue is not empty")
        time.sleep(DRAIN_POLL_SECONDS)


def _threads(module: str, name: str) -> list[threading.Thread]:
    kind = getattr(sys.modules.get(module), name, None)
    if kind is None:
        return []
    return [thread for thread in threading.enumerate() if type(thread) is kind]


def _objects(module: str, name: str) -> list[Any]:
    """Return all objects of a class and its subclasses, if its module is loaded."""
    kind = getattr(sys.modules.get(module), name, None)
    if not isinstance(kind, type):
        return []
    kinds = {kind, *_subclasses(kind)}
    # By type, not isinstance: that runs code of objects, such as lazily loaded modules.
    return [found for found in gc.get_objects() if type(found) in kinds]


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in type.__subclasses__(kind):
        yield each
        yield from _subclasses(each)
