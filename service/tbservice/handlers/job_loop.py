"""The loop of a handler process: one job after another, each linked to its request in the worker.

Messages are pickled tuples. To the process: (job, arguments), then a reply to each call:
(True, value) or (False, None). From the process, during a job: ("call", name, arguments) and
("log", logger, level, text); at its end ("done", value), ("refused", error, detail),
("failed", traceback), ("memory",) or ("aborted",), each followed by whether the process accepts
another job.
"""

from __future__ import annotations

import logging
import pickle
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from tbservice.errors import ServiceError

Job = Callable[..., Any]
"""A function of a `WorkerLink` and arguments that returns only plain values and bytes."""

LOG_CHARS_MAX: Final = 1_000
"""Characters of a message for the worker's log; of a traceback, the last ones."""

_LOG_LINES_MAX: Final = 5
"""Records that one job may write to the worker's log."""

_GROWTH_KIB_MAX: Final = 64 * 1024
"""KiB by which the peak size of a process may grow before it is not used again."""


class JobAborted(BaseException):
    """A call failed in the worker, which has the error.

    Derived from BaseException, so that no `except Exception` of a job catches it.
    """


class WorkerLink:
    """The connection from a job to its request in the worker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the worker's function of this name and return its result; an error ends the job."""
        self._connection.send_bytes(pickle.dumps(("call", name, arguments)))
        is_good, value = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - the worker is trusted
        if not is_good:
            raise JobAborted
        return value


class _LogToWorker(logging.Handler):
    """Handler that sends our own warnings to the worker's log, limited in number and length.

    TensorBoard's records are not sent: they may contain a tenant's data.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.lines_left = _LOG_LINES_MAX

    def emit(self, record: logging.LogRecord) -> None:
        if self.lines_left:
            self.lines_left -= 1
            message = ("log", record.name, record.levelno, record.getMessage()[:LOG_CHARS_MAX])
            self._connection.send_bytes(pickle.dumps(message))


def run_jobs(connection: Connection, jobs: Mapping[str, Job]) -> None:
    """Run jobs until the worker closes the connection, or one increased memory use too much."""
    log = _LogToWorker(connection)
    logging.root.handlers, logging.root.level = [logging.NullHandler()], logging.CRITICAL
    ours = logging.getLogger("tbservice")
    ours.handlers, ours.propagate, ours.level = [log], False, logging.WARNING

    link = WorkerLink(connection)
    size = _peak_kib()
    is_last = False
    while not is_last:
        try:
            name, arguments = pickle.loads(connection.recv_bytes())  # noqa: S301 - the worker is trusted
        except (EOFError, OSError):
            return
        log.lines_left = _LOG_LINES_MAX
        outcome = _run(jobs[name], link, arguments)
        is_last = outcome[0] == "memory" or _peak_kib() > size + _GROWTH_KIB_MAX
        connection.send_bytes(pickle.dumps((*outcome, not is_last)))


def _run(job: Job, link: WorkerLink, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return "done", job(link, *arguments)
    except JobAborted:
        return ("aborted",)
    except ServiceError as error:
        return "refused", type(error).__name__, error.detail
    except MemoryError:
        return ("memory",)
    except Exception:  # noqa: BLE001 - the worker raises it
        return "failed", traceback.format_exc()[-LOG_CHARS_MAX:]


def _peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak
