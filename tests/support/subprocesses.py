"""Run other programs to their end."""

from __future__ import annotations

import subprocess

from support.waiting import SECONDS_MAX


def run_to_end(command, *, check=False, timeout=SECONDS_MAX, **options):
    """Run a program; return its exit code and, as texts, what it printed."""
    return subprocess.run(
        command, capture_output=True, text=True, check=check, timeout=timeout, **options
    )
