"""One attacker as a process: `python attacking NAME SECONDS`, the target as JSON on its standard input.

Prints its tally as JSON when it is done, at SIGTERM, or after so many seconds.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attacking.catalog import ATTACKS, CONTROLS
from attacking.crowd import Tally
from attacking.target import Target


class _Ended(BaseException):
    """The parent, or the alarm, wants the tally."""


def main() -> None:
    """Run one attack."""
    name, seconds = sys.argv[1], int(sys.argv[2])
    target = Target.from_json(sys.stdin.read())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tally = Tally()
    try:
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, _end)
        signal.alarm(seconds)
        (ATTACKS | CONTROLS)[name].run(target, tally)
    except _Ended:
        pass
    signal.alarm(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(json.dumps({"outcomes": tally.outcomes, "slowest_seconds": tally.slowest_seconds}), flush=True)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


if __name__ == "__main__":
    main()
