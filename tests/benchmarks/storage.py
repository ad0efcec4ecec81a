"""How many bytes PostgreSQL keeps for a scalar, indexes included: as uploaded, merged, and
vacuumed.
"""

from __future__ import annotations

import time

from bench import Bench, say
from logdirs import MILLION, REGULAR, Pace, Size, write_scalars
from machine import report
from service import Service
from upload import upload

MERGE_SECONDS_MAX = 600
TARGET = "at most 12"

CASES = {
    "a point every 10 ms or so": REGULAR,
    "irregular: every 50th step, some left out, with pauses": Pace(stride=50, is_irregular=True),
}
SIZES = """
    SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


def measure(bench: Bench) -> None:
    """Uploads a million scalars of each sort to an empty database and compares every table with
    what it was.
    """
    for number, (name, pace) in enumerate(CASES.items()):
        if bench.is_chosen(name):
            say(f"{name}: writing, uploading")
            with bench.new_service(f"service_{number}") as service:
                _measure(service, MILLION.scaled(bench.scale), pace)


def _measure(service: Service, size: Size, pace: Pace) -> None:
    logdir = service.directory / "logdir"
    file_bytes = write_scalars(logdir, size, pace=pace)
    before = dict(service.query(SIZES))
    upload(service, logdir)
    _print("as uploaded", size, before, dict(service.query(SIZES)))
    say("waiting until everything is merged")
    waited = wait_for_merge(service)
    _print(f"merged, {waited:.0f} s later", size, before, dict(service.query(SIZES)))
    service.query(
        "VACUUM"
    )  # what autovacuum does within minutes: the space of merged tail rows is given back
    after = dict(service.query(SIZES))
    _print("merged and vacuumed", size, before, after, TARGET)
    grown = sorted(((after[name] - before[name], name) for name in after), reverse=True)[:3]
    print(
        "    the most of it: "
        + ", ".join(f"{name} {grew / size.points:.2f}" for grew, name in grown)
    )
    report("a scalar in its event file", f"{file_bytes / size.points:.2f} B")


def wait_for_merge(service: Service) -> float:
    """Return the seconds until compaction has emptied the write buffer."""
    began = time.monotonic()
    while service.query("SELECT EXISTS (SELECT 1 FROM scalar_tail)") != [(False,)]:
        assert time.monotonic() < began + MERGE_SECONDS_MAX, service.query(
            "SELECT count(*) FROM scalar_tail"
        )
        time.sleep(0.5)
    return time.monotonic() - began


def _print(
    when: str, size: Size, before: dict[str, int], after: dict[str, int], target: str = ""
) -> None:
    grown = sum(after.values()) - sum(before.values())
    report(f"storage of a scalar, {when}", f"{grown / size.points:.2f} B", target)
