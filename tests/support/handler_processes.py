"""The handler processes of a running service."""

from __future__ import annotations

from contextlib import suppress

import psutil


def handler_processes(service) -> list[psutil.Process]:
    """Return the handler processes, and the clones that they are forked from.

    The service has a clone of a program of its parent, `support.zygote`.
    """
    processes = []
    for process in psutil.Process(service.process.pid).parent().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            parent = process.parent()
            if parent is not None and "fork_server" in " ".join(parent.cmdline()):
                processes.append(process)
    return processes


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
