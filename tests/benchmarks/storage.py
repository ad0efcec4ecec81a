"""How many bytes PostgreSQL keeps for a scalar, once tails are merged; indexes included."""

from __future__ import annotations

import time

from logdirs import MILLION, write_scalars
from machine import report
from service import Service
from upload import upload

MERGE_SECONDS_MAX = 180

SIZES = """
    SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


def measure(service: Service) -> None:
    """Uploads a million scalars, waits until no tail is left, and compares every table with what it was."""
    logdir = service.directory / "logdir"
    file_bytes = write_scalars(logdir)
    before = dict(service.query(SIZES))
    upload(service, logdir)
    _print("as uploaded", before, dict(service.query(SIZES)), "")
    waited = wait_for_merge(service)
    service.query("VACUUM")  # what autovacuum does within minutes: the space of merged tail rows is given back
    after = dict(service.query(SIZES))
    _print(f"merged, {waited:.0f} s later, and vacuumed", before, after, "at most 16")
    grown = sorted(((after[name] - before[name], name) for name in after), reverse=True)[:3]
    print("    the most of it: " + ", ".join(f"{name} {size / MILLION.points:.2f}" for size, name in grown))
    report("a scalar in its event file", f"{file_bytes / MILLION.points:.2f} B")


def wait_for_merge(service: Service) -> float:
    """Seconds until the merger has left no tail row."""
    began = time.monotonic()
    while service.query("SELECT EXISTS (SELECT FROM scalar_tail)") != [(False,)]:
        assert time.monotonic() < began + MERGE_SECONDS_MAX, service.query("SELECT count(*) FROM scalar_tail")
        time.sleep(0.5)
    return time.monotonic() - began


def _print(when: str, before: dict[str, int], after: dict[str, int], target: str) -> None:
    grown = sum(after.values()) - sum(before.values())
    report(f"storage of a scalar, {when}", f"{grown / MILLION.points:.2f} B", target)
