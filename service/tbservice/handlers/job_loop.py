"""What a handler process does: one job after the other, each with a link to the request in the worker.

Messages are pickled tuples. To the process: (job, arguments), then an answer to each call, (True, value) or (False,
None). From it, while it works: ("call", name, arguments) and ("log", logger, level, text); at the end ("done", value),
("refused", error, detail), ("failed", traceback), ("memory",) or ("aborted",), each with whether it takes another job.
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
"""Called with a `WorkerLink` and arguments; returns plain values and bytes alone."""

LOG_CHARS_MAX: Final = 1_000
"""Characters of a line for the worker's log; of a traceback its last ones."""

_LOG_LINES_MAX: Final = 5
"""Lines one job may write to the worker's log."""

_GROWTH_KIB_MAX: Final = 64 * 1024
"""KiB a process may have grown by, at its greatest, to be used again."""


class JobAborted(BaseException):
    """A call failed in the worker, which has the error; no handler is meant to catch this."""


class WorkerLink:
    """The way from a job to the request it is done for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what the worker's function of this name does; its error ends the job."""
        self._connection.send_bytes(pickle.dumps(("call", name, arguments)))
        is_good, value = pickle.loads(self._connection.recv_bytes())  # noqa: S301 - the worker is trusted
        if not is_good:
            raise JobAborted
        return value


class _LogToWorker(logging.Handler):
    """Sends our own warnings to the worker's log, bounded. What TensorBoard would log holds a tenant's data."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.lines_left = _LOG_LINES_MAX

    def emit(self, record: logging.LogRecord) -> None:
        if self.lines_left:
            self.lines_left -= 1
            line = ("log", record.name, record.levelno, record.getMessage()[:LOG_CHARS_MAX])
            self._connection.send_bytes(pickle.dumps(line))


def run_jobs(connection: Connection, jobs: Mapping[str, Job]) -> None:
    """Do jobs until the worker closes the connection, or until one has left much memory behind."""
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
