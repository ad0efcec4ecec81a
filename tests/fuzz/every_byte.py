"""Cuts event files at every byte, and flips every byte of them: `python tests/fuzz/every_byte.py
[FILE...]`.

Without FILE, all of tests/data (half an hour on one core). Each byte is tried in four ways: the
file cut before it and grown again; all bits of the byte inverted; one bit of it inverted, drawn
from a seed; and that once more with the checksum that fits the damage, so that protobuf, not the
checksum, has to cope with it. `support/damaged_files.py` says what must come of each. The whole
file is read each time, but a file over 1 KiB is taken as several files of whole records, so that
the time grows with the size, not with its square.

Exits with 1 after naming the bytes at which the reader was wrong, or wanted over 256 MiB of memory.
A try that takes over a minute is a hang, and ends the script with a traceback.
"""

# ruff: noqa: T201 - a script prints

from __future__ import annotations

import argparse
import faulthandler
import random
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from support.damaged_files import Bench, read_plainly, windows  # noqa: E402 - the path has to be there

WINDOW_BYTES = 1 << 10
SECONDS_MAX = 60
MEMORY_BYTES_MAX = 256 << 20


def main() -> None:
    """Tries every byte of the files named, or of all in tests/data."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the single bits that are flipped (default 0)"
    )
    options = parser.parse_args()
    warnings.simplefilter("error")
    bound_memory()
    files, started = options.files or sorted(TESTS.glob("data/**/*tfevents*")), time.monotonic()
    tries = failures = 0
    with tempfile.TemporaryDirectory(
        prefix="tbhub-every-byte-", dir=memory_directory()
    ) as directory:
        for path in files:
            counts = try_file(path, Bench(Path(directory)), random.Random(options.seed))  # noqa: S311 - no secret
            tries, failures = tries + counts[0], failures + counts[1]
    print(
        f"{len(files)} files, {tries:,} tries, {failures} failed, {time.monotonic() - started:,.0f} s"
    )
    sys.exit(failures > 0)


def try_file(path: Path, bench: Bench, generator: random.Random) -> tuple[int, int]:
    """Tries every byte of a file; answers how many tries there were, and how many failed."""
    started, content = time.monotonic(), path.read_bytes()
    tries = failures = 0
    if read_plainly(content).is_corrupt or read_plainly(content).damaged:
        sys.exit(f"{path} is damaged already: only what is damaged here can be told from it")
    base = 0
    for window in windows(content, WINDOW_BYTES):
        for offset in range(len(window)):
            faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
            for name, check in ways(bench, window, offset, 1 << generator.randrange(8)):
                tries += 1
                failures += not passes(f"{path}, byte {base + offset}, {name}", check)
        base += len(window)
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{path}: {tries:,} tries, {failures} failed, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    return tries, failures


def ways(
    bench: Bench, content: bytes, offset: int, bit: int
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every way a byte is tried."""
    yield "cut", lambda: bench.check_cut(content, offset)
    yield "inverted", lambda: bench.check_flip(content, offset, 0xFF)
    yield f"exclusive-or {bit:#x}", lambda: bench.check_flip(content, offset, bit)
    yield f"exclusive-or {bit:#x}, resealed", lambda: bench.check_resealed(content, offset, bit)


def memory_directory() -> str | None:
    """A directory that is no disk, where there is one: a file is written for each try."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - the name inside it is a new one


def passes(name: str, check: Callable[[], None]) -> bool:
    """Whether the reader was right; says so when not, whatever went wrong."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 - anything that comes out of the reader is a finding
        print(f"{name}: {type(error).__name__}: {str(error)[:1000]}", flush=True)
        return False
    return True


def bound_memory() -> None:
    """Makes an allocation far over what the reader needs here fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + MEMORY_BYTES_MAX
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
