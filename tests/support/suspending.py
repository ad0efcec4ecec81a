"""Suspend and release things, as the commands do."""

from __future__ import annotations

from tbservice.auth import suspensions
from tbservice.types.suspensions import Suspendable

REASON = 'Spam <b>"& more"</b>'


def suspend(database, kind, object_id, reason=REASON):
    """Suspend something, in the transaction of a command."""
    with database.transaction() as db:
        return suspensions.suspend(db, Suspendable(kind), str(object_id), reason)


def release(database, kind, object_id):
    """Release it."""
    with database.transaction() as db:
        return suspensions.release(db, Suspendable(kind), str(object_id))
