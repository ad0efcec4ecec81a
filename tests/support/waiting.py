"""Wait until something is so, for a limited time."""

from __future__ import annotations

import time

SECONDS_MAX = 120
"""No process and no wait of these tests takes longer, except those that say so.

A limit for failures only: on a slow machine with other work, starts take ten times as long.
"""


def wait_until(condition, seconds_max=SECONDS_MAX, pause=0.02):
    """Evaluate the condition until it is true, with a pause in seconds between; return its value.

    Fails after `seconds_max`.
    """
    deadline = time.monotonic() + seconds_max
    while not (answer := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause)
    return answer
