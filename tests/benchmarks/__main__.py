"""Measures speed and size: `make bench`, or `make bench ARGS="server upload"` for a part; nothing
here is a test.

Each benchmark is a module of this directory with the same name, whose first line says what it
measures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
from bench import open_bench

BENCHMARKS = (
    "upload",
    "remote",
    "server",
    "storage",
    "live",
    "viewers",
    "small",
    "sample",
    "page",
    "charts",
    "shown",
    "export",
    "fairness",
    "tenants",
    "citus",
)
"""In the order of a point's path; what needs more than this project is last."""


def main() -> None:
    """Runs the benchmarks that were named, or all, one after the other."""
    options = _parse()
    signal.signal(
        signal.SIGTERM, lambda _number, _frame: sys.exit("stopped")
    )  # so that what was started is ended
    print(machine.describe())
    for name in options.names or BENCHMARKS:
        benchmark = importlib.import_module(name)
        print(f"\n{name}: {_first_sentence(benchmark.__doc__)}", flush=True)
        with open_bench(name, options.scale, options.rounds, options.only) as bench:
            benchmark.measure(bench)
        record(options.json, name, {"scale": options.scale, "only": options.only})


def record(path: Path, name: str, options: dict[str, object]) -> None:
    """Write the figures of one benchmark into a file, in the place of those it has of it.

    The file is an object: name of a benchmark to commit, time (UTC), machine, options and figures.
    """
    git = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {
        "commit": commit,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        **options,
        "figures": [list(figure) for figure in machine.FIGURES],
    }
    machine.FIGURES.clear()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1) + "\n")


def _parse() -> argparse.Namespace:
    lines = [
        f"  {name:<9} {_first_sentence(importlib.import_module(name).__doc__)}"
        for name in BENCHMARKS
    ]
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=...",
        epilog="\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="what to measure (default: everything)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="sizes, times this: 0.1 for a quick look"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of what is measured in turns (default: 3)"
    )
    parser.add_argument(
        "--only",
        metavar="WORD",
        default="",
        help="of the cases of a benchmark, those with one of these words, parted by commas",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=Path,
        default=Path("dist/benchmarks.json"),
        help="where the figures are kept, by benchmark (default: %(default)s)",
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(
            f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}"
        )
    return options


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


if __name__ == "__main__":
    main()
