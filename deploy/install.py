"""Install locked packages into a virtual environment and show how far that is: `make` runs this.

    python deploy/install.py VENV LOCK [PROJECT]

Creates VENV if it is missing, installs what LOCK names, each package checked by its hash, then the
project in the directory PROJECT, editable. An installation that was interrupted starts over: pip
would take a package of which it wrote half for a whole one. pip keeps its downloads.

Needs nothing but the standard library, because it runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

SECONDS_PER_LOOK: Final = 0.2
SECONDS_PER_LINE: Final = 10.0
"""Seconds between two lines of progress where the output is no terminal."""

ERROR_LINES_MAX: Final = 30
"""Lines of pip's output that are shown if it fails."""

CLEAR: Final = "\r\x1b[K"
"""Begins a terminal's line again."""

_INCOMPLETE: Final = "incomplete"
"""A file in the environment, from the beginning of an installation until its end."""

_REQUIREMENT: Final = re.compile(r"^[A-Za-z0-9]\S*==", re.MULTILINE)
_FETCHED: Final = re.compile(r"(?:Collecting|Requirement already satisfied:|Ignoring) ([\w.-]+)")
_DOWNLOAD: Final = re.compile(r"  Downloading (\S+?)-\d\S* \((.+)\)")


class Progress:
    """Progress of pip, from its lines of output."""

    def __init__(self, total: int, packages: Path) -> None:
        """Begin with nothing fetched.

        Args:
            total: Number of requirements in the lock.
            packages: The environment's directory of packages, in which installed ones are counted.
        """
        self._total = total
        self._packages = packages
        self._fetched = 0
        self._current = ""
        self._to_install = 0
        self._has_ended = False
        self._before = self._count_installed()

    def read(self, line: str) -> None:
        """Take one line of pip's output."""
        if match := _FETCHED.match(line):
            self._fetched += 1
            self._current = match[1]
        elif match := _DOWNLOAD.match(line):
            self._current = f"{match[1]}, {match[2]}"
        elif line.startswith("Installing collected packages:"):
            self._to_install = line.count(",") + 1

    def end(self) -> None:
        """Note that pip has ended with success."""
        self._has_ended = True

    def describe(self) -> str:
        """Return how far pip is, in one line."""
        if self._has_ended:
            return (
                f"installed {self._to_install} packages"
                if self._to_install
                else "nothing to install"
            )
        if not self._to_install:
            return f"fetched {self._fetched} of {self._total} packages: {self._current}"
        installed = min(self._count_installed() - self._before, self._to_install)
        return f"installed {installed} of {self._to_install} packages"

    def _count_installed(self) -> int:
        # pip writes a package's RECORD last.
        return sum(1 for _ in self._packages.glob("*.dist-info/RECORD"))


class Display:
    """One line that is written over on a terminal; elsewhere a line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._written = ""
        self._next = time.monotonic() + SECONDS_PER_LINE

    def show(self, text: str) -> None:
        """Show the text, if it is new and its time has come."""
        if text == self._written or (not self._is_terminal and time.monotonic() < self._next):
            return
        self._next = time.monotonic() + SECONDS_PER_LINE
        self._written = text
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write(CLEAR + f"  {text}"[: width - 1])
        else:
            self._stream.write(f"  {text}\n")
        self._stream.flush()

    def end(self, text: str) -> None:
        """Write the last line."""
        self._stream.write(f"{CLEAR if self._is_terminal else ''}  {text}\n")
        self._stream.flush()


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    venv, lock, *project = map(Path, arguments)
    with _alone(venv):
        prepare(venv)
        code = install(venv, ["--require-hashes", "--requirement", str(lock)], lock.read_text())
        if code == 0 and project:
            offline = ["--no-deps", "--no-build-isolation", "--no-index"]
            code = install(venv, [*offline, "--editable", str(project[0])])
        if code == 0:
            (venv / _INCOMPLETE).unlink()
    return code


def prepare(venv: Path) -> None:
    """Create the environment, a new one if an earlier installation was interrupted; mark it."""
    marker = venv / _INCOMPLETE
    python = venv / "bin" / "python"
    if marker.exists() or not python.exists() or not _has_pip(python):
        if venv.exists():
            print(f"the last installation into {venv} did not end: starting over", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
    marker.touch()


def install(venv: Path, options: list[str], lock: str = "") -> int:
    """Run `pip install` and show how far it is; return its exit code.

    If pip fails, its last lines are shown. `lock` is the text of the lock; without one, no progress
    is shown.
    """
    begin = time.monotonic()
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    packages = next(venv.glob("lib/python*")) / "site-packages"
    progress = Progress(len(_REQUIREMENT.findall(lock)), packages)
    display = Display(sys.stdout)
    lines: list[str] = []
    with subprocess.Popen(
        # Python compiles what is imported, when it is: a third of what is installed, and later.
        [*pip, "--progress-bar", "off", "--no-compile", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        reader = threading.Thread(target=_read, args=(process.stdout, lines, progress))
        reader.start()
        while reader.is_alive():
            if lock:
                display.show(progress.describe())
            reader.join(SECONDS_PER_LOOK)
    if process.returncode:
        said = [line for line in lines if not _FETCHED.match(line.strip())]
        display.end("\n  ".join(["pip failed:", *said[-ERROR_LINES_MAX:]]))
    elif lock:
        progress.end()
        display.end(f"{progress.describe()} in {time.monotonic() - begin:.0f} s")
    return process.returncode


@contextmanager
def _alone(venv: Path) -> Iterator[None]:
    """Wait until no other process installs into an environment beside this one."""
    directory = os.open(venv.absolute().parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for the other installation into {venv}", flush=True)
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)  # which unlocks it


def _has_pip(python: Path) -> bool:
    command = [str(python), "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _read(output: Iterable[str], lines: list[str], progress: Progress) -> None:
    for line in output:
        lines.append(line.rstrip())
        progress.read(line)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted: the same command starts over", file=sys.stderr)
        sys.exit(130)
