"""The handler processes of a running service, and which of them computes."""

from __future__ import annotations

from contextlib import suppress

import psutil

BUSY_SECONDS = 0.2
"""Processor time from which a process is computing, more than a request without work takes."""


def computed(service) -> dict[psutil.Process, float]:
    """Return the CPU seconds of each handler process, and of the clones that they are forked from.

    The service has a clone of a program of its parent, `support.zygote`.
    """
    seconds = {}
    for process in psutil.Process(service.process.pid).parent().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            parent = process.parent()
            if parent is not None and "fork_server" in " ".join(parent.cmdline()):
                seconds[process] = process.cpu_times().user
    return seconds


def busy(now, before) -> psutil.Process | None:
    """Return the process that has computed between two answers of `computed`, or None."""
    return next(
        (
            process
            for process, seconds in now.items()
            if seconds > before.get(process, 0) + BUSY_SECONDS
        ),
        None,
    )


def suggestion_processes(service) -> list[psutil.Process]:
    """Return the processes that compute suggestions for the only service with a gRPC port."""
    program = "katib.suggestions.handler_jobs"
    computing = []
    for process in psutil.Process(service.process.pid).parent().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            # Its parent is a clone of the program, which is the parent of that.
            above = process.parents()[:2]
            if len(above) == 2 and all(program in " ".join(each.cmdline()) for each in above):
                computing.append(process)
    return computing
