"""A `tbservice serve` that is killed and started again on its port."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import psutil

from support import zygote


class RestartedService:
    """A context manager; `process` is the newest one. Its output is appended to `log`."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment = environment
        self.log = log

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it; return before it is ready."""
        with self.log.open("ab") as output:
            self.process = zygote.fork("tbservice", ["serve"], self._environment, output.fileno())

    def kill(self) -> None:
        """Kill it and all its children with SIGKILL, as if its machine had stopped."""
        main = psutil.Process(self.process.pid)
        for process in [main, *main.children(recursive=True)]:
            try:
                process.kill()
            except psutil.NoSuchProcess:  # it ended with its parent
                continue
        self.process.wait()

    def kill_and_start(self) -> None:
        """Kill it, ready or not, and start another one."""
        self.kill()
        self.start()
