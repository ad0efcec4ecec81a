"""Compares the copies of reference tables that the nodes of a cluster (Citus) have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from tbservice.db.cluster.reference_tables import CopyDigest, list_reference_tables, read_digests
from tbservice.db.database import Database
from tbservice.integrity.findings import Damage

_LOOKS_MAX: Final = 5
"""Looks at a table whose copies differ: a commit arrives on its nodes one after the other."""

_PAUSE_SECONDS: Final = 0.5


def compare_reference_tables(database: Database) -> Iterator[Damage]:
    """Yield the tables whose copies differ at each look; nothing on plain PostgreSQL.

    Raises Unavailable if a node does not answer.
    """
    with database.transaction() as db:
        tables = list_reference_tables(db)
    for table in tables:
        differing: set[str] | None = None
        for look in range(_LOOKS_MAX):
            if look:
                time.sleep(_PAUSE_SECONDS)
            with database.transaction() as db:
                copies = read_digests(db, table)
            now = _list_differing_parts(copies)
            differing = now if differing is None else differing & now
            if not differing:
                break
        else:
            rows = ", ".join(f"{node} has {copy.rows:,} rows" for node, copy in copies.items())
            yield Damage("reference_table", f"the copies of {table} differ: {rows}", None)


def _list_differing_parts(copies: dict[str, CopyDigest]) -> set[str]:
    parts = {part for copy in copies.values() for part in copy.parts}
    return {part for part in parts if len({copy.parts.get(part) for copy in copies.values()}) > 1}
