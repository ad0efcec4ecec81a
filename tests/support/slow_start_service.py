"""`tbservice` whose workers wait before they create their application, if a file exists (SLOW_FILE).

A worker writes its process id into the file when it begins to wait. While the file is empty, it is
the next one that waits. With HANGS, it stops itself, and cannot answer its parent, which says when
it knows that a worker has started.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tbservice.server import supervisor, workers

WAIT_SECONDS = 40
HEALTHCHECK_SECONDS_MAX = 2
START_SECONDS_MAX = 10

create_app = workers.create_app
find_problem = supervisor.Worker.find_problem


def create_slowly(settings):
    file = Path(os.environ["SLOW_FILE"])
    if file.exists() and not file.read_text():
        file.write_text(f"{os.getpid()}\n")
        if "HANGS" in os.environ:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(WAIT_SECONDS)
    return create_app(settings)


def find_problem_and_tell(worker):
    before, problem = worker.has_started, find_problem(worker)
    if worker.has_started and not before:
        sys.stdout.write(f"worker {worker.pid} has started\n")
        sys.stdout.flush()
    return problem


if __name__ == "__main__":
    from tbservice.cli import main

    workers.create_app = create_slowly
    if "HANGS" in os.environ:
        supervisor.Worker.find_problem = find_problem_and_tell
        supervisor.WORKER_HEALTHCHECK_SECONDS_MAX = HEALTHCHECK_SECONDS_MAX
        supervisor.WORKER_START_SECONDS_MAX = START_SECONDS_MAX
    sys.exit(main(["serve"]))
