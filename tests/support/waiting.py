"""Wait until something is so, for a limited time."""

from __future__ import annotations

import time

SECONDS_MAX = 60
"""No process and no wait of these tests takes longer."""


def wait_until(condition):
    """Evaluate the condition until it is true; return its value. Fails after SECONDS_MAX."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (answer := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return answer
