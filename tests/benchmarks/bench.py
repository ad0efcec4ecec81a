"""Arguments of a benchmark: a directory, its sizes, and services to measure when it wants some."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from service import Service, new_service

from support.servers import Servers
from tbservice.local.embedded.instance import Instance


@dataclass
class Bench:
    """A benchmark's surroundings, gone when it ends; `directory` is on the disk of the system's
    temporary files.

    `scale` multiplies sizes, `rounds` says how often things are measured in turns, `only` picks
    cases by words parted by commas, any of which suffices.
    """

    directory: Path
    scale: float
    rounds: int
    only: str
    stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def servers(self) -> Servers:
        """PostgreSQL and SeaweedFS, started when first wanted."""
        say("starting PostgreSQL and SeaweedFS")
        return Servers(self.stack.enter_context(Instance(self.directory / "data")))

    @contextmanager
    def new_service(self, name: str = "service", **more: str) -> Iterator[Service]:
        """One worker over an empty database, while the block lasts; `more` is set in its
        environment.
        """
        with new_service(self.servers, self.directory / name, **more) as service:
            yield service

    def is_chosen(self, case: str) -> bool:
        return any(word in case for word in self.only.split(","))

    def need_disk(self, size: float) -> None:
        """Ends the program when there is no room for `size` bytes."""
        free = shutil.disk_usage(self.directory).free
        if free < size:
            raise SystemExit(
                f"this needs {size / 2**30:.0f} GiB in {self.directory.parent}, and {free / 2**30:.0f} are free: "
                "make room, set TMPDIR to another disk, or give a smaller --scale"
            )


@contextmanager
def open_bench(name: str, scale: float, rounds: int, only: str) -> Iterator[Bench]:
    """The surroundings of one benchmark."""
    with (
        tempfile.TemporaryDirectory(prefix=f"tbhub-bench-{name}-") as directory,
        ExitStack() as stack,
    ):
        yield Bench(Path(directory), scale, rounds, only, stack)


def say(what: str) -> None:
    """Tells what is going on."""
    print(f"  … {what}", flush=True)
