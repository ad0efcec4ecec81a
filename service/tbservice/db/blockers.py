"""Holders of the locks that a migration has waited for, on any node of a cluster (Citus)."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import Connection, Engine, text

from tbservice.db.cluster.citus import has_extension

_SHOWN_MAX: Final = 3

_INTERNAL: Final = "citus_internal gpid="
"""How the sessions are named that a node of a cluster opens for a session of another one."""

_GPID_BASE: Final = 10_000_000_000
"""A global process id is nodeid * 10^10 + process id on that node."""

_HOLDERS: Final = """
    SELECT coalesce(json_agg(h), '[]') FROM (
        SELECT pid, application_name, backend_type, state,
            extract(epoch FROM clock_timestamp() - xact_start)::bigint AS transaction_seconds,
            extract(epoch FROM clock_timestamp() - query_start)::bigint AS query_seconds
        FROM pg_stat_activity AS a
        WHERE pid <> pg_backend_pid() AND EXISTS (
            SELECT FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
            WHERE l.pid = a.pid AND l.granted
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
                AND (cardinality({tables}::text[]) = 0
                    OR regexp_replace(c.relname, '_[0-9]+$', '') = ANY ({tables}::text[])))
        ORDER BY xact_start NULLS FIRST LIMIT {shown}
    ) AS h
"""
"""Holders of locks on tables or their shards (TABLE_NUMBER), the oldest transactions first."""


def describe_blockers(engine: Engine, tables: list[str]) -> str:
    """Describe who holds locks on the tables, on any if none is named; the oldest come first.

    In a cluster, on each node that answers.
    """
    with engine.connect() as db:
        texts = _describe_nodes(db, tables) if has_extension(db) else _describe_server(db, tables)
    return f"({'; '.join(texts) or 'by a transaction that has ended'})"


def _describe_server(db: Connection, tables: list[str]) -> list[str]:
    query = _HOLDERS.format(tables="CAST(:tables AS text[])", shown=_SHOWN_MAX)
    holders = db.execute(text(query), {"tables": tables}).scalar_one()
    return [_describe(holder) for holder in holders]


def _describe_nodes(db: Connection, tables: list[str]) -> list[str]:
    names = db.execute(text("SELECT quote_literal(CAST(:tables AS text[]))"), {"tables": tables})
    query = _HOLDERS.format(tables=names.scalar_one(), shown=_SHOWN_MAX)
    answers = db.execute(
        text("""
            SELECT nodename || ':' || nodeport, success, result
            FROM run_command_on_all_nodes(:query) JOIN pg_dist_node USING (nodeid)
        """),
        {"query": query},
    )
    texts = []
    for node, is_answer, result in answers.all():
        if not is_answer:
            texts.append(f"{node} does not answer")
            continue
        texts += [f"{_describe(holder)}, on {node}" for holder in json.loads(result)]
    return texts


def _describe(holder: dict[str, Any]) -> str:
    program = holder["application_name"] or holder["backend_type"] or "a program without a name"
    number = program.removeprefix(_INTERNAL)
    if program != number and number.isdecimal():
        nodeid, pid = divmod(int(number), _GPID_BASE)
        program = f"for process {pid} of the node with nodeid {nodeid}"
    # Only a superuser sees what sessions of other roles do.
    age = "of another role"
    if holder["transaction_seconds"] is not None:
        seconds = holder["transaction_seconds"], holder["query_seconds"]
        age = "transaction {} s, query {} s old".format(*seconds)
    return f"process {holder['pid']}, {program}, {holder['state'] or 'state unknown'}, {age}"
