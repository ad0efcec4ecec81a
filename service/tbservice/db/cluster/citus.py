"""Differences of a PostgreSQL that is a cluster (Citus), in one place, and where shards are.

Statements are the same on both, except for the functions below, and for what other modules declare
as `Forms`. Which server a connection is to is found when it is opened, and only this module asks
(docs/decisions/0043). See docs/citus.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, NamedTuple, TypeVar

import psycopg
from sqlalchemy import Connection, exc, text

from tbservice import limits
from tbservice.db.arrays import Array, encode_array
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

NODE_SECONDS_MAX: Final = 5.0
"""Seconds for which a process remembers where an experiment is: every node can answer anyway."""

_IDS_ITEMS: Final = 256
"""Ids that are generated to find one of a shard."""

_IS_CLUSTER: Final = "tbhub_is_cluster"
"""The key of a connection's flag, in the dictionary that SQLAlchemy keeps for it."""

_NUMBERING: Final = "tbhub_numbering"
"""Key of the callable that `note_numbering` stores."""

OpenTransaction = Callable[[str], AbstractContextManager[Connection]]
"""Begins a transaction with the statements that it is given."""

PROPAGATE_SETTINGS: Final = "SET LOCAL citus.propagate_set_commands = 'local'"
"""Makes a transaction on a cluster pass on the SET LOCALs that follow."""


Form = TypeVar("Form")


class Forms(NamedTuple, Generic[Form]):
    """One step in two forms: each is a statement, a function that executes some, or a value.

    For steps whose form for a cluster would cost plain PostgreSQL more than 3 %.
    """

    plain: Form
    cluster: Form

    def of(self, db: Connection) -> Form:
        """Return the form for the server that the connection is to."""
        return self.cluster if _is_cluster(db) else self.plain


ANY_EXPERIMENT: Final = Forms("(SELECT CAST(%(experiment_id)s AS text))", "%(experiment_id)s")
"""The parameter `experiment_id`, of which plain PostgreSQL has no statistics (decision 7).

If these name all experiments but a new one, that has no rows for the planner. It may then look
through all rows of the experiment for each key. A cluster needs the value to find the node.
"""


class Node(NamedTuple):
    """A node of the cluster, as the others connect to it."""

    host: str
    port: int


def configure_connection(
    driver: psycopg.Connection[Any], info: dict[Any, Any], *, is_pooled: bool
) -> None:
    """Find out whether a new connection is of a cluster, and note it in `info`.

    There, SET LOCAL is passed on to the nodes that a transaction uses: row policies read settings.
    Behind a pooler, each transaction must begin with `PROPAGATE_SETTINGS` for that.

    Plans are not kept: Citus 14.0.1 keeps that of a prepared statement of one table and experiment,
    but never finds it again, and each execution takes 35 kB of the session's memory for good.
    """
    info[_IS_CLUSTER] = _is_distributed(driver)
    if info[_IS_CLUSTER] and is_pooled:
        driver.prepare_threshold = None
    elif info[_IS_CLUSTER]:
        driver.execute("SET citus.propagate_set_commands = 'local'")
        driver.execute("SET plan_cache_mode = 'force_custom_plan'")


def _is_distributed(driver: psycopg.Connection[Any]) -> bool:
    """Return whether the tables are distributed, not only whether the extension is there.

    In between, what selects from experiment_counters, which is empty then, would store nothing.
    """
    row = driver.execute("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')")
    if not (row.fetchone() or (False,))[0]:
        return False
    row = driver.execute("""
        SELECT EXISTS (
            SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('experiments')
        )
    """)
    return bool((row.fetchone() or (False,))[0])


def has_extension(db: Connection) -> bool:
    """Return whether the database has the extension: its tables may not be distributed yet."""
    statement = text("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')")
    return bool(db.execute(statement).scalar())


def _is_cluster(db: Connection) -> bool:
    return bool(db.info.get(_IS_CLUSTER, False))


def node_of(db: Connection, experiment_id: ExperimentId) -> Node | None:
    """Return the node of a cluster that has an experiment's rows.

    It may move at any time: a wrong answer costs time only.
    """
    row = db.execute(
        text("""
            SELECT n.nodename, n.nodeport FROM pg_dist_partition AS t
            JOIN pg_dist_placement AS p
                ON p.shardid =
                    get_shard_id_for_distribution_column(t.logicalrelid, CAST(:id AS text))
            JOIN pg_dist_node AS n ON n.groupid = p.groupid AND n.noderole = 'primary'
            WHERE t.logicalrelid = to_regclass('experiments') AND t.partmethod = 'h'
        """),
        {"id": experiment_id},
    ).first()
    return None if row is None else Node(row.nodename, row.nodeport)


def list_nodes(db: Connection) -> dict[int, Node]:
    """Return the nodes of the cluster by group: a standby that replaces one has its group.

    Not those that an administrator has disabled (citus_disable_node). Plain PostgreSQL has none.
    """
    if not _is_cluster(db):
        return {}
    rows = db.execute(
        text("""
            SELECT groupid, nodename, nodeport FROM pg_dist_node
            WHERE noderole = 'primary' AND isactive ORDER BY groupid
        """)
    )
    return {row.groupid: Node(row.nodename, row.nodeport) for row in rows}


def insert_source(db: Connection) -> str:
    """Return a sub-select of one row (experiment_id, workspace_id), to insert rows from.

    A cluster runs an INSERT … SELECT on the one node that has the experiment's rows if it selects
    the key from a table of that experiment; otherwise it fetches and sends the rows, and begins
    with a COPY, which row policies forbid. Not from `experiments`, where the policies hide deleted
    ones, which can be restored: what compaction rewrites must not get lost.

    Its parameters are %(experiment_id)s and %(workspace_id)s.
    """
    return _SOURCE.of(db)


_SOURCE: Final = Forms(
    plain="""
        (SELECT %(experiment_id)s::text AS experiment_id, %(workspace_id)s::bigint AS workspace_id)
    """,
    cluster="""
        (SELECT experiment_id, workspace_id FROM experiment_counters
         WHERE experiment_id = %(experiment_id)s)
    """,
)


def begin_counter(db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId) -> None:
    """Insert the row of a new experiment that `insert_source` and `new_ids` need; in a cluster."""
    if _is_cluster(db):
        statement = text("""
            INSERT INTO experiment_counters (experiment_id, workspace_id)
            VALUES (:experiment_id, :workspace_id)
        """)
        db.execute(statement, {"experiment_id": experiment_id, "workspace_id": workspace_id})


def note_numbering(info: dict[Any, Any], open_transaction: OpenTransaction) -> None:
    """Note in a connection's `info` how `new_ids` opens a transaction beside it."""
    info[_NUMBERING] = open_transaction


def new_ids(db: Connection, grant: ExperimentGrant, count: int) -> range | None:
    """Return ids for new runs, tags or series of an experiment of a cluster, in order of creation.

    None on plain PostgreSQL, where sequences give them. Each node of a cluster has its own part of
    a sequence, so that ids of an experiment that moves would not be in order.

    The counter's row is updated in a transaction beside `db`, so that other batches of the
    experiment do not wait until this one ends. Ids of what is rolled back stay unused. That commit
    need not reach the disk: one that uses the ids comes after it in the same write-ahead log.
    """
    if not _is_cluster(db):
        return None
    last = _count_beside(db, grant, count) or _count_on(db, grant.experiment_id, count)
    assert last is not None  # noqa: S101 - each experiment has a counter
    return range(last - count + 1, last + 1)


def _count_beside(db: Connection, grant: ExperimentGrant, count: int) -> int | None:
    """Return the last of so many new ids; None if `db` itself has to count.

    That is so if it has created the experiment, if a pooler could let both wait for each other, and
    if the counter cannot be had within `limits.NUMBERING_LOCK_SECONDS_MAX`. A move of the shard may
    be waiting for `db` then: it lets nobody else write, and no server sees who waits for whom.
    """
    open_transaction: OpenTransaction | None = db.info.get(_NUMBERING)
    if open_transaction is None:
        return None
    begin = (
        f"BEGIN; SET LOCAL tbhub.workspace_id = '{int(grant.workspace_id)}'; "
        f"SET LOCAL lock_timeout = '{limits.NUMBERING_LOCK_SECONDS_MAX}s'; "
        "SET LOCAL synchronous_commit = 'off'"
    )
    try:
        with open_transaction(begin) as beside:
            return _count_on(beside, grant.experiment_id, count)
    except (psycopg.OperationalError, exc.OperationalError, exc.TimeoutError):
        return None


def _count_on(db: Connection, experiment_id: ExperimentId, count: int) -> int | None:
    statement = text("""
        UPDATE experiment_counters SET last_id = last_id + :count
        WHERE experiment_id = :experiment_id RETURNING last_id
    """)
    last: int | None = db.execute(
        statement, {"count": count, "experiment_id": experiment_id}
    ).scalar()
    return last


class BlockIds(NamedTuple):
    """Parts of an INSERT … SELECT of blocks `u` of an experiment: all empty on plain PostgreSQL.

    `column` and `value` begin with a comma; `types` and `parameters` are added to those of `u`.
    """

    column: str
    value: str
    types: dict[str, str]
    parameters: dict[str, Array]


def block_ids(db: Connection, table: str, count: int, levels: tuple[str, ...] = ()) -> BlockIds:
    """Number `count` new blocks of a table after the stored blocks of their series.

    On plain PostgreSQL a sequence does. Rows of the series are locked, so that nobody else inserts
    any. Ids of deleted blocks may be given again.

    Args:
        db: A transaction.
        table: A table of blocks.
        count: Blocks.
        levels: Expressions for the levels to look at, if the table has any.
    """
    if not _is_cluster(db):
        return BlockIds("", "", {}, {})
    conditions = [f"AND b.level = {level}" for level in levels] or [""]
    greatest = ", ".join(
        f"""
            (SELECT max(b.block_id) FROM {table} AS b
             WHERE b.experiment_id = %(experiment_id)s AND b.series_id = u.series_id {condition})
        """  # noqa: S608 - called with constants
        for condition in conditions
    )
    return BlockIds(
        ", block_id",
        f", coalesce(greatest({greatest}), 0) + u.ordinal",
        {"ordinal": "bigint"},
        {"ordinal": encode_array("bigint", range(1, count + 1))},
    )


_AT_NODE: Final = """
    FROM (SELECT count(*) FROM experiment_counters WHERE experiment_id = :at) AS one_row
"""
"""Part of a statement that a cluster executes where the experiment `at` is, or would be."""


def lock_name(db: Connection, name: str, experiment_id: str | None = None) -> None:
    """Make other transactions that lock this name wait until this one ends.

    An advisory lock is one server's. In a cluster, whatever node the service entered by, it is that
    of the node that has this experiment, or would have one with the name as its id. The rows that
    the lock protects must be on that node: commits on two nodes are two commits.
    """
    statement = f"SELECT pg_advisory_xact_lock(hashtextextended(:name, 0)) {_AT_NODE}"
    db.execute(text(statement), {"name": name, "at": experiment_id or name})


def try_lock_name(db: Connection, name: str, experiment_id: str | None = None) -> bool:
    """Lock a name as `lock_name` does; return False when another transaction has it."""
    statement = f"SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0)) {_AT_NODE}"
    parameters = {"name": name, "at": experiment_id or name}
    return bool(db.execute(text(statement), parameters).scalar_one())


def choose_id(
    db: Connection, generate: Callable[[], ExperimentId], locked: str | None
) -> ExperimentId:
    """Return a new experiment's id; in a cluster, of one on the node where a name is locked.

    Else who waits for the name could get it before the experiment is there.
    """
    if locked is None or not _is_cluster(db):
        return generate()
    statement = text("""
        SELECT id FROM unnest(CAST(:ids AS text[])) AS id
        WHERE get_shard_id_for_distribution_column('experiments', id)
            = get_shard_id_for_distribution_column('experiments', CAST(:locked AS text))
        LIMIT 1
    """)
    while True:  # with 32 shards, none of 256 is in the right one 3 times in 10,000
        ids = encode_array("text", [generate() for _ in range(_IDS_ITEMS)])
        chosen: ExperimentId | None = db.execute(statement, {"ids": ids, "locked": locked}).scalar()
        if chosen is not None:
            return chosen
