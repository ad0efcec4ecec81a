"""The clock of the database, which is the same for all hosts of the service."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text


def read_now(db: Connection) -> datetime:
    """Return the time at which the transaction began, in UTC: SQL's now().

    Times that are stored, or compared with stored ones, come from here: the clocks of two hosts of
    the service may differ by minutes.
    """
    now: datetime = db.execute(text("SELECT now()")).scalar_one()
    return now
