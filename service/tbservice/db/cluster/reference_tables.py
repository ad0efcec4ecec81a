"""Digests of a cluster's (Citus) reference tables, of which each node has a copy of its own.

A write is one on all nodes. But a standby that lagged when it was promoted, or a node that was
restored, lacks the last ones, and Citus never compares.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.errors import Unavailable

_FUNCTION: Final = """
    CREATE FUNCTION digest_reference_table(name text) RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = public, pg_temp SET TimeZone = 'UTC' SET DateStyle = 'ISO'
    SET bytea_output = 'hex' SET extra_float_digits = '1' AS $$
    DECLARE
        copy regclass;
        digest jsonb;
    BEGIN
        SELECT to_regclass(name || '_' || s.shardid) INTO copy FROM pg_dist_shard AS s
        JOIN pg_dist_partition AS t USING (logicalrelid)
        WHERE s.logicalrelid = to_regclass(name) AND t.partmethod = 'n' AND t.repmodel = 't';
        IF copy IS NULL THEN
            RETURN NULL;
        END IF;
        EXECUTE format('
            SELECT coalesce(jsonb_object_agg(part, jsonb_build_array(items, total)), ''{}'') FROM (
                SELECT hash & 255 AS part, count(*) AS items, sum(hash) AS total
                FROM (SELECT hashtextextended(t::text, 0) AS hash FROM %s AS t) AS hashes
                GROUP BY 1
            ) AS parts', copy) INTO digest;
        RETURN digest;
    END $$
"""
"""Returns {part: [rows, sum of their hashes]} of this node's own copy, NULL if it has none.

A row is in one of 256 parts by its hash, so that rows that are written while nodes are compared
make few of them differ. It runs as the owner of the tables: the role that serves sees the rows of
one tenant at a time, and no secrets' digests at all. It returns none of them.
"""


class CopyDigest(NamedTuple):
    """One node's copy of a table: a text for each of its parts, and its rows."""

    parts: dict[str, str]
    rows: int


def create_function(db: Connection) -> None:
    """Create the function that reads a copy, unless it is there. Citus passes it on."""
    if not db.execute(text("SELECT to_regproc('digest_reference_table')")).scalar():
        db.exec_driver_sql(_FUNCTION, execution_options={"no_parameters": True})


def drop_function(db: Connection) -> None:
    """Drop it from a database that has left a cluster."""
    db.execute(text("DROP FUNCTION IF EXISTS digest_reference_table"))


def list_reference_tables(db: Connection) -> list[str]:
    """Return the names of a cluster's reference tables; none until migrate made the function."""
    has_function = text("SELECT to_regproc('digest_reference_table')")
    if not citus.list_nodes(db) or not db.execute(has_function).scalar():
        return []
    rows = db.execute(
        text("""
            SELECT c.relname FROM pg_dist_partition AS t
            JOIN pg_class AS c ON c.oid = t.logicalrelid
            WHERE t.partmethod = 'n' AND t.repmodel = 't' ORDER BY 1
        """)
    )
    return list(rows.scalars())


def read_digests(db: Connection, table: str) -> dict[str, CopyDigest]:
    """Return the digests of the copies of a table, by the address of the node.

    Each node reads its copy once.

    Raises Unavailable if a node does not answer.
    """
    answers = db.execute(
        text("""
            SELECT nodename || ':' || nodeport, success, result
            FROM run_command_on_all_nodes(
                format('SELECT digest_reference_table(%L)', CAST(:table AS text)))
            JOIN pg_dist_node USING (nodeid) ORDER BY groupid
        """),
        {"table": table},
    ).all()
    if away := [node for node, is_answer, _ in answers if not is_answer]:
        raise Unavailable(f"nodes of the cluster do not answer: {', '.join(away)}")
    digests = {}
    for node, _, result in answers:
        if result:  # else it was added, and gets its copies with the first shard
            parts = json.loads(result)
            rows = sum(count for count, _ in parts.values())
            digests[node] = CopyDigest({part: str(value) for part, value in parts.items()}, rows)
    return digests
