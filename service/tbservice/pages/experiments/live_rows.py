"""Tokens of running experiments, by which a script keeps their rows in tables live."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.errors import NotFound
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.experiments.experiment_reader import make_script_token

LIVE_EXPERIMENTS_ITEMS_MAX: Final = 4
"""Experiments (items) of a page whose rows are live: as many streams as a browser opens."""


def list_live_sources(
    database: Database, session: PersonSession, ids: Iterable[str]
) -> list[dict[str, str]]:
    """Return id and token of the first of these experiments, which the person may read."""
    sources: list[dict[str, str]] = []
    for experiment_id in list(dict.fromkeys(ids))[:LIVE_EXPERIMENTS_ITEMS_MAX]:
        with contextlib.suppress(NotFound):  # it was deleted meanwhile
            with database.without_transaction() as db:
                grant = grants.grant_read(db, experiment_id, session.secret)
            token = make_script_token(database, grant, session)
            sources.append({"id": experiment_id, "token": token})
    return sources
