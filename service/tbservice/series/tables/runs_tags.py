"""Queries on `runs` and `tags`: names, unique in an experiment by their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import EXPERIMENTS, fetch_binary, fetch_of_experiments
from tbservice.series.tables import wing_tables
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import INT64_MAX, ExperimentId
from tbservice.types.series import Run, RunSize

SEARCHED_NAME_CHARS_MAX: Final = 300
"""Characters of a name in which `search_names` looks: a name may have 10,000."""


_ANY_EXPERIMENT: Final = "(SELECT CAST(:experiment_id AS text))"
"""The experiment as `citus.ANY_EXPERIMENT`, for statements of SQLAlchemy."""


class _Resolve(NamedTuple):
    """Statements that find or create names, and return (id, name_digest) rows.

    Existing names are looked up first, so that they use no id. The names that a concurrent
    transaction creates meanwhile are missing in the result.
    """

    whole: str
    """One for both, on plain PostgreSQL: a sequence gives ids."""

    find: str
    create: str
    """The two for a cluster, which runs no INSERT within a query on one node."""


def _make_resolve_statements(table: str, id_column: str) -> _Resolve:
    names = """
        unnest(CAST(:names AS text[]), CAST(:digests AS bytea[]))
            WITH ORDINALITY AS input (name, digest, ordinal)
    """
    find = f"""
        SELECT r.* FROM {{names}} CROSS JOIN LATERAL (
            SELECT {id_column} AS id, name_digest FROM {table}
            WHERE experiment_id = {{experiment_id}} AND name_digest = input.digest
            LIMIT 1 FOR KEY SHARE) AS r
    """  # noqa: S608 - called with the constants below
    insert = f"INSERT INTO {table} (experiment_id, workspace_id, {id_column}, name, name_digest)"
    end = f"""
        ORDER BY digest  -- one order for all transactions, so that they cannot deadlock
        ON CONFLICT DO NOTHING
        RETURNING {id_column} AS id, name_digest
    """
    whole = f"""
        WITH input AS MATERIALIZED (SELECT * FROM {names}),
        existing AS MATERIALIZED ({find.format(names="input", experiment_id=_ANY_EXPERIMENT)}),
        numbered AS MATERIALIZED (
            SELECT nextval('{table}_{id_column}_seq') AS id, name, digest FROM (
                SELECT name, digest FROM input
                WHERE digest NOT IN (SELECT name_digest FROM existing)
                ORDER BY ordinal) AS new),
        created AS (
            {insert} SELECT :experiment_id, :workspace_id, id, name, digest FROM numbered {end})
        SELECT id, name_digest FROM existing UNION ALL SELECT id, name_digest FROM created
    """  # noqa: S608 - called with the constants below
    create = f"""
        {insert} SELECT e.experiment_id, e.workspace_id, u.id, u.name, u.digest
        FROM {{source}} AS e
        CROSS JOIN unnest(%(ids)s::bigint[], %(names)s::text[], %(digests)s::bytea[])
            AS u (id, name, digest) {end}
    """  # noqa: S608 - called with the constants below
    return _Resolve(whole, find.format(names=names, experiment_id=":experiment_id"), create)


_RESOLVE_RUNS: Final = _make_resolve_statements("runs", "run_id")
_RESOLVE_TAGS: Final = _make_resolve_statements("tags", "tag_id")


def hash_name(name: str) -> bytes:
    """Return the SHA-256 by which a name is unique.

    Names may be longer than an entry of a B-tree index, 2,704 bytes.
    """
    return hashlib.sha256(name.encode()).digest()


def resolve_runs(db: Connection, grant: ExperimentGrant, names: Collection[str]) -> dict[str, int]:
    """Return the id of each run by name, creating new ones with ids in the order of `names`.

    Locks the runs against deletion until the transaction ends.
    """
    return _resolve(db, grant, _RESOLVE_RUNS, names)


def resolve_tags(db: Connection, grant: ExperimentGrant, names: Collection[str]) -> dict[str, int]:
    """Return the id of each tag by name, creating new ones with ids in the order of `names`.

    Locks the tags against deletion until the transaction ends. Ids are valid in this transaction
    only. A process must not cache them: after a failover to a standby that lagged behind, or after
    a restore, an id may be unused, or another tag's (docs/decisions/0013).
    """
    return _resolve(db, grant, _RESOLVE_TAGS, names)


def _resolve(
    db: Connection, grant: ExperimentGrant, statement: _Resolve, names: Collection[str]
) -> dict[str, int]:
    # https://www.postgresql.org/docs/18/btree.html: an entry must fit a third of a page.
    by_digest = {hash_name(name): name for name in names}
    while True:
        rows = _FIND_OR_CREATE.of(db)(db, statement, grant, by_digest)
        # Ends: a name that another transaction has committed is found by the next statement (READ
        # COMMITTED, https://www.postgresql.org/docs/18/transaction-iso.html#XACT-READ-COMMITTED).
        if len(rows) == len(by_digest):
            return {by_digest[bytes(digest)]: id_ for id_, digest in rows}
        # Another transaction created one meanwhile and has committed: the next statement sees it.


def _find_or_create(
    db: Connection, statement: _Resolve, grant: ExperimentGrant, by_digest: Mapping[bytes, str]
) -> list[Any]:
    """Return (id, digest) of names, except names that others create meanwhile."""
    return list(db.execute(text(statement.whole), _name_parameters(grant, by_digest)))


def _find_or_create_in_cluster(
    db: Connection, statement: _Resolve, grant: ExperimentGrant, by_digest: Mapping[bytes, str]
) -> list[Any]:
    found = list(db.execute(text(statement.find), _name_parameters(grant, by_digest)))
    existing = {bytes(digest) for _, digest in found}
    new = {digest: name for digest, name in by_digest.items() if digest not in existing}
    if (ids := citus.new_ids(db, grant, len(new)) if new else None) is None:
        return found
    create = statement.create.format(source=citus.insert_source(db))
    values = {**_name_parameters(grant, new), "ids": encode_array("bigint", ids)}
    return found + fetch_binary(db, create, values)


_FIND_OR_CREATE: Final = citus.Forms(_find_or_create, _find_or_create_in_cluster)


def _name_parameters(grant: ExperimentGrant, by_digest: Mapping[bytes, str]) -> dict[str, Any]:
    return {
        "experiment_id": grant.experiment_id,
        "workspace_id": grant.workspace_id,
        "names": encode_array("text", list(by_digest.values())),
        "digests": encode_array("bytea", list(by_digest)),
    }


def set_start_times(
    db: Connection,
    experiment_id: ExperimentId,
    run_ids: Sequence[int],
    first: Sequence[float],
    last: Sequence[float | None],
) -> None:
    """Set each run's start time to a wall time (seconds since the epoch) if that is earlier.

    `last` is the start of the last of its files, None for what is no file's.
    """
    db.execute(
        text("""
            WITH other AS MATERIALIZED (
                SELECT runs.run_id, u.first, u.last
                FROM unnest(CAST(:run_ids AS bigint[]), CAST(:first AS float8[]),
                    CAST(:last AS float8[])) AS u (run_id, first, last)
                JOIN runs ON runs.experiment_id = :experiment_id AND runs.run_id = u.run_id
                WHERE runs.run_id = ANY (CAST(:run_ids AS bigint[]))
                    AND (runs.start_time IS NULL OR runs.start_time > u.first
                        OR u.last > coalesce(runs.last_start_time, '-infinity'))
                ORDER BY runs.run_id FOR NO KEY UPDATE OF runs)
            UPDATE runs SET start_time = least(start_time, other.first),
                last_start_time = greatest(last_start_time, other.last)
            FROM other
            WHERE runs.experiment_id = :experiment_id AND runs.run_id = other.run_id
        """),
        {
            "experiment_id": experiment_id,
            "run_ids": encode_array("bigint", run_ids),
            "first": encode_array("float8", first),
            "last": encode_array("float8", last),
        },
    )


def list_runs(
    db: Connection, experiment_id: ExperimentId, after: int = 0, limit: int | None = None
) -> dict[int, Run]:
    """Return runs with an id above `after`, by id, in the order of creation."""
    statement = text(
        "SELECT run_id, name, start_time FROM runs "
        "WHERE experiment_id = :experiment_id AND run_id > :after ORDER BY run_id LIMIT :limit"
    )
    values = {"experiment_id": experiment_id, "after": after, "limit": limit}
    return {row.run_id: Run(row.name, row.start_time) for row in db.execute(statement, values)}


def list_run_names(
    db: Connection, experiment_id: ExperimentId, names: Collection[str] | None = None
) -> dict[int, str]:
    """Return run names by id, in the order of creation; only existing ones of `names`, if any."""
    return _list_names(db, "runs", "run_id", experiment_id, names)


def list_tag_names(
    db: Connection, experiment_id: ExperimentId, names: Collection[str] | None = None
) -> dict[int, str]:
    """Return tag names by id, in the order of creation; only existing ones of `names`, if any."""
    return _list_names(db, "tags", "tag_id", experiment_id, names)


def _list_names(
    db: Connection,
    table: str,
    id_column: str,
    experiment_id: ExperimentId,
    names: Collection[str] | None,
) -> dict[int, str]:
    condition = "" if names is None else "AND name_digest = ANY (CAST(%(digests)s AS bytea[]))"
    statement = f"""
        SELECT {id_column}, name FROM {table}
        WHERE experiment_id = %(experiment_id)s {condition} ORDER BY {id_column}
    """  # noqa: S608 - called with the constants above
    digests = (
        {}
        if names is None
        else {"digests": encode_array("bytea", [hash_name(name) for name in names])}
    )
    # Binary: a wide experiment has a hundred thousand, of which SQLAlchemy's rows take 0.07 s.
    return dict(fetch_binary(db, statement, {"experiment_id": experiment_id, **digests}))


def list_sizes(
    db: Connection,
    experiment_id: ExperimentId,
    limit: int,
    *,
    search: str = "",
    after: int = 0,
    run_ids: Sequence[int] | None = None,
) -> list[RunSize]:
    """Return runs with their sizes, in the order of creation.

    Args:
        db: A transaction.
        experiment_id: The experiment.
        limit: Runs at most.
        search: Only runs whose names contain this, in any case.
        after: Only runs with greater ids.
        run_ids: Only these.
    """
    rows = db.execute(
        text("""
            SELECT r.run_id, r.name, s.series, s.points FROM (
                SELECT run_id, name FROM runs
                WHERE experiment_id = :experiment_id AND run_id > :after
                    AND (:search = '' OR position(lower(:search) IN lower(name)) > 0)
                    AND (CAST(:run_ids AS bigint[]) IS NULL
                        OR run_id = ANY (CAST(:run_ids AS bigint[])))
                ORDER BY run_id LIMIT :limit) AS r
            CROSS JOIN LATERAL (
                SELECT count(*) AS series, coalesce(sum(count), 0)::bigint AS points
                FROM time_series
                WHERE experiment_id = :experiment_id AND run_id = r.run_id) AS s
            ORDER BY r.run_id
        """),
        {
            "experiment_id": experiment_id,
            "after": min(after, INT64_MAX),
            "search": search,
            "run_ids": None if run_ids is None else list(run_ids),
            "limit": limit,
        },
    )
    return [RunSize(*row) for row in rows]


def find_run_ids(db: Connection, experiment_id: ExperimentId, prefixes: Sequence[str]) -> list[int]:
    """Return the runs of which the first 8 bytes of the name's digest are one of these, as hex."""
    statement = text("""
        SELECT run_id FROM runs WHERE experiment_id = :experiment_id
            AND encode(substring(name_digest FROM 1 FOR 8), 'hex') = ANY (CAST(:prefixes AS text[]))
    """)
    values = {"experiment_id": experiment_id, "prefixes": encode_array("text", prefixes)}
    return list(db.execute(statement, values).scalars())


def search_names(
    db: Connection,
    table: str,
    experiment_ids: Sequence[ExperimentId],
    words: Sequence[str],
    rows_max: int,
    limit: int,
) -> list[tuple[ExperimentId, str]]:
    """Return names of runs or tags that contain all words, in any case.

    Those of an experiment that begin with the first word come first, then the newest.

    Args:
        db: A transaction.
        table: `runs` or `tags`.
        experiment_ids: Where to search.
        words: One at least, in lower case.
        rows_max: Names of each experiment that are looked at, the newest.
        limit: Names of each experiment.
    """
    id_column = {"runs": "run_id", "tags": "tag_id"}[table]
    beginning = f"lower(left(name, {SEARCHED_NAME_CHARS_MAX}))"
    conditions = [f"strpos({beginning}, %(word{n})s) > 0" for n in range(len(words))]
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, r.name FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (
                SELECT name, {id_column} FROM (
                    SELECT name, {id_column} FROM {table} AS t
                    WHERE t.experiment_id = w.experiment_id
                    ORDER BY {id_column} DESC LIMIT {rows_max}
                ) AS newest
                WHERE {" AND ".join(conditions)}
                ORDER BY starts_with({beginning}, %(word0)s) DESC, {id_column} DESC LIMIT {limit}
            ) AS r
        """,  # noqa: S608 - constants
        experiment_ids,
        {f"word{n}": word for n, word in enumerate(words)},
    )
    return [(ExperimentId(experiment_id), name) for experiment_id, name in rows]


def delete_unused_tags(db: Connection, experiment_id: ExperimentId, tag_ids: Sequence[int]) -> None:
    """Delete these tags, except the ones that a series, or a row of a wing, of the experiment has.

    Waits for transactions that are about to create a series of such a tag, and for other deletions
    of the experiment: of two at once, each would take the other's series for a use of the tag.
    """
    citus.lock_name(db, f"tags {experiment_id}", experiment_id)
    parameters = {"experiment_id": experiment_id, "tag_ids": encode_array("bigint", list(tag_ids))}
    unused = "experiment_id = :experiment_id AND tag_id = ANY (CAST(:tag_ids AS bigint[]))"
    for table in ("time_series", *wing_tables.list_tables()):
        unused += f"""
            AND tag_id NOT IN (SELECT tag_id FROM {table} WHERE experiment_id = :experiment_id)
        """  # noqa: S608 - names of tables of ours
    # Two statements: the second sees the series that the first has waited for.
    lock = f"SELECT tag_id FROM tags WHERE {unused} ORDER BY tag_id FOR UPDATE"  # noqa: S608
    if db.execute(text(lock), parameters).all():
        delete = f"DELETE FROM tags WHERE {unused}"  # noqa: S608 - a constant
        db.execute(text(delete), parameters)


def lock_run(db: Connection, experiment_id: ExperimentId, name: str) -> int | None:
    """Return a run's id, locked against ingest until the transaction ends; None if there is none.

    Waits for transactions that write to the run.
    """
    return _find_id(db, "runs", "run_id", experiment_id, name, "FOR UPDATE")


def find_tag(db: Connection, experiment_id: ExperimentId, name: str) -> int | None:
    """Return a tag's id; None if it does not exist."""
    return _find_id(db, "tags", "tag_id", experiment_id, name)


def _find_id(
    db: Connection,
    table: str,
    id_column: str,
    experiment_id: ExperimentId,
    name: str,
    lock: str = "",
) -> int | None:
    statement = text(f"""
        SELECT {id_column} FROM {table}
        WHERE experiment_id = :experiment_id AND name_digest = :digest {lock}
    """)  # noqa: S608 - called with the constants above
    parameters = {"experiment_id": experiment_id, "digest": hash_name(name)}
    id_: int | None = db.execute(statement, parameters).scalar()
    return id_


def delete_run(db: Connection, experiment_id: ExperimentId, run_id: int) -> None:
    """Delete a run's row. The caller deletes its series, points and streams."""
    statement = text("DELETE FROM runs WHERE experiment_id = :experiment_id AND run_id = :run_id")
    db.execute(statement, {"experiment_id": experiment_id, "run_id": run_id})
