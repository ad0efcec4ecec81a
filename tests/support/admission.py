"""Use up a worker's shares, and admit calls that do not pass through the middleware."""

from __future__ import annotations

from contextlib import contextmanager

from tbservice.admission.admitted import admit
from tbservice.admission.shares import Caller
from tbservice.admission.worker_shares import WorkerShares

CALLER = Caller("workspace 1", False, "workspace 1", "workspace 1")
OTHER = Caller("workspace 0", False, "workspace 0", "workspace 0")
"""A workspace that no test has: ids begin at 1."""

STRANGER = Caller("address 192.0.2.1", True, "an experiment", "address 192.0.2.1")


@contextmanager
def used_up(shares, amount):
    """Let another workspace use that much of the shares until the block ends."""
    shares.acquire_unchecked(OTHER, amount)
    try:
        yield
    finally:
        shares.release(OTHER, amount)


def come_in():
    """Admit the running task or test as a request of `CALLER`; return the worker's shares."""
    shares = WorkerShares(10)
    admit(CALLER, shares)
    return shares
