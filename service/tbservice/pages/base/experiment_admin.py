"""The right to change an experiment that a page's session has, and transactions with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.pages.base.person_session import PersonSession
from tbservice.types.grants import AdminGrant


def grant_admin(database: Database, experiment_id: str, session: PersonSession) -> AdminGrant:
    """Return the right to change an experiment. Raises NotFound and Forbidden."""
    with database.without_transaction() as db:
        return grants.grant_admin(db, experiment_id, session.secret)


@contextmanager
def admin_transaction(
    database: Database, experiment_id: str, session: PersonSession
) -> Iterator[tuple[Connection, AdminGrant]]:
    """Return a transaction with the right to change an experiment. Raises as `grant_admin`."""
    grant = grant_admin(database, experiment_id, session)
    with database.transaction(grant) as db:
        yield db, grant
