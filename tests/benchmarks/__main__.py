"""Measures speed and size: `make bench`, or `make bench ARGS="upload sample"` for a part; nothing here is a test."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import sample
import storage
import upload
from service import new_service

from support.servers import Servers
from tbservice.embedded.instance import Instance

BENCHMARKS = {"upload": upload.measure, "storage": storage.measure, "sample": sample.measure}


def main() -> None:
    """Runs the benchmarks that were named, or all, each on a service of its own."""
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="tbhub-bench-") as directory, Instance(Path(directory, "data")) as instance:
        servers = Servers(instance)
        for name in names:
            with new_service(servers, Path(directory, name)) as service:
                BENCHMARKS[name](service)


if __name__ == "__main__":
    main()
