"""One attacker as a process: `python attacking NAME SECONDS`, the target as JSON on its standard
input.

Prints its counts of outcomes as JSON at SIGTERM, or after so many seconds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attacking.catalog import KNOWN
from attacking.target import Target

NICENESS = 10
"""Attackers are on other machines in truth: here they take what the service leaves of the cores."""

_ENDING = (signal.SIGTERM, signal.SIGALRM)


class _Ended(BaseException):
    """The parent, or the alarm, wants the tally."""


def main() -> None:
    """Run one attack."""
    name, seconds = sys.argv[1], int(sys.argv[2])
    target = Target.from_json(sys.stdin.read())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(NICENESS)
    tally = Counter[str]()
    try:
        for number in _ENDING:
            signal.signal(number, _end)
        signal.alarm(seconds)
        KNOWN[name].run(target, tally)
    except _Ended:
        pass
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    print(json.dumps(tally), flush=True)


def _end(_number: int, _frame: FrameType | None) -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)  # a second one must not break the counting off
    raise _Ended


if __name__ == "__main__":
    main()
