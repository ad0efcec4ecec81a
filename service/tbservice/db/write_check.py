"""Checks that a server can write, and says when another one has taken its place."""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy import Connection, text

from tbservice import metrics
from tbservice.db.errors import READ_ONLY
from tbservice.errors import Unavailable

_log = logging.getLogger(__name__)

_TIMELINE_DIGITS: Final = 8
"""Hexadecimal digits at the start of the name of a segment of the write-ahead log."""

_PROMOTED: Final = (
    "the timeline of the %s was %d and is %d: a standby was promoted, or an older state "
    "restored. Unless replication was synchronous, the last acknowledged uploads may be missing: "
    "see 'A failover' in docs/on-call.md"
)


def check_writable(db: Connection) -> int:
    """Check that a server can write: to its log (WAL), and to its disk; return its timeline.

    The timeline is a number that grows when a standby is promoted (PostgreSQL manual, 25.3.6
    "Timelines").

    Writes a temporary file of 1 MiB beside the tables, which is deleted at once: on a full disk
    a row still fits an existing page, and a WAL record an existing segment. Does not wait for
    synchronous standbys.

    Args:
        db: A transaction; its settings are changed.

    Raises:
        Unavailable: The server is a standby or read-only.
    """
    settings = (
        ("work_mem", "64kB"),  # the least: so that the query below needs a file
        ("temp_tablespaces", ""),
        # A missing synchronous standby would let this wait without end:
        # https://www.postgresql.org/docs/18/runtime-config-wal.html#GUC-SYNCHRONOUS-COMMIT
        ("synchronous_commit", "local"),
    )
    for name, value in settings:
        db.execute(text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value})

    read_only = text("SELECT current_setting('transaction_read_only')::boolean")
    if db.execute(read_only).scalar_one():
        db.invalidate()  # another host of the URL may be the primary by now
        raise Unavailable(READ_ONLY)

    # 1 MiB over a work_mem of 64 kB: the function's rows are spooled to a temporary file.
    db.execute(text("SELECT count(*) FROM unnest(array_fill(repeat('x', 8192), ARRAY[128]))"))
    # Writes to the log without touching a table:
    # https://www.postgresql.org/docs/18/functions-admin.html#FUNCTIONS-REPLICATION
    segment: str = db.execute(
        text("""
            SELECT pg_walfile_name(pg_current_wal_insert_lsn())
            FROM pg_logical_emit_message(true, 'tbhub', 'ready')
        """)
    ).scalar_one()
    return int(segment[:_TIMELINE_DIGITS], 16)


class Timelines:
    """The timelines of a database, or of each node of a cluster, as they were seen last."""

    def __init__(self) -> None:
        self._by_group: dict[int | None, int] = {}

    def observe(self, timeline: int, group: int | None = None, name: str = "database") -> None:
        """Say that another server is the primary now: it may lack the last acknowledged commits.

        Args:
            timeline: The timeline that was seen.
            group: The number of a node of a cluster, which its standby takes over with its place.
            name: Name of the server in the log.
        """
        before = self._by_group.get(group)
        if before is not None and timeline != before:
            _log.warning(_PROMOTED, name, before, timeline)
        self._by_group[group] = timeline
        metrics.observe_timeline(timeline, group)
