"""Locks of each migration, and the data that it reads, rewrites and takes away, on a real database (decision 0033)."""

import re
from contextlib import contextmanager

import pytest
from sqlalchemy import NullPool, text

from support.releases import LAST_MIGRATION
from support.schema_changes import break_problems, held_locks, lock_problems, read_schema
from tbservice.db import migrate, schema_versions
from tbservice.db.engine import make_engine

pytestmark = pytest.mark.plain(
    "finds locks, scans and rewrites in the catalog of the server that has the rows"
)

MIGRATIONS = {migration.name: migration for migration in schema_versions.list_migrations()}
ONLINE = [migration for name, migration in MIGRATIONS.items() if name > LAST_MIGRATION]
"""Migrations after the last release, which run while its servers do."""

MAY_LOCK_SEVERAL = {
    "0029_traffic": "tables of a few rows, which only who looks for room reads, in this order",
    "0030_retention": "tables of a few rows; no transaction with the second waits for the first",
}
"""Migrations that lock several tables of before, each with the reason."""

CONCURRENT_STATEMENT = re.compile(
    r"DROP INDEX CONCURRENTLY IF EXISTS|CREATE (UNIQUE )?INDEX CONCURRENTLY \w+ ON"
    r"|ALTER TABLE \w+ VALIDATE CONSTRAINT"
)


@pytest.fixture(scope="module")
def steps(servers):
    """Locks that each migration held at its end, and both kinds of problems."""
    steps = {}
    with servers.database(migrated=False) as url:
        engine = make_engine(url, poolclass=NullPool)
        for migration in MIGRATIONS.values():
            with connect(engine, concurrent=migration.concurrent) as db:
                before = read_schema(db)
                migrate.apply(db, migration.name)
                locks, slow = held_locks(db, before), lock_problems(db, before)
                steps[migration.name] = locks, slow, break_problems(before, read_schema(db))
    return steps


@contextmanager
def connect(engine, *, concurrent):
    if not concurrent:
        with engine.begin() as db:
            yield db
    else:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            yield db


@pytest.mark.parametrize("migration", MIGRATIONS.values(), ids=MIGRATIONS)
def test_migration_declares_its_locks(migration, steps):
    if not migration.concurrent:
        assert steps[migration.name][0] == migration.locks
    else:
        assert set(migration.locks.values()) == {"SHARE UPDATE EXCLUSIVE"}


def test_migrations_after_release_run_beside_its_servers(steps):
    problems = {}
    for migration in ONLINE:
        locks, slow, breaks = steps[migration.name]
        if migration.concurrent:
            slow = statement_problems(migration)
        if len(locks) > 1 and migration.name not in MAY_LOCK_SEVERAL:
            slow.append(f"locks {', '.join(locks)}: one table per migration")
        if migration.required_revision:
            breaks = []
        if slow or breaks:
            problems[migration.name] = slow + breaks
    assert not problems


def statement_problems(migration):
    """Return the statements of a concurrent migration that others could wait for."""
    file = schema_versions.find_migrations() / "versions" / f"{migration.name}.py"
    statements = re.findall(
        r'"+\s*((?:ALTER|CREATE|DROP|UPDATE|DELETE|INSERT)\b[^"]*)', file.read_text()
    )
    return [each for each in statements if not CONCURRENT_STATEMENT.match(each)]


def test_required_revision_is_released_before_it_is_required():
    names = [*MIGRATIONS]
    for migration in ONLINE:
        if migration.required_revision:
            assert migration.required_revision in names[: names.index(LAST_MIGRATION) + 1]


def test_program_needs_no_migration_that_is_not_released():
    assert schema_versions.OLDEST_SCHEMA <= LAST_MIGRATION


SLOW = {
    "ALTER TABLE workspaces ALTER COLUMN name TYPE bytea USING name::bytea": "rewrites workspaces",
    "ALTER TABLE runs ADD COLUMN x float8 DEFAULT random()": "rewrites runs",
    "ALTER TABLE runs ADD COLUMN x bigserial": "rewrites runs",
    "CREATE INDEX x ON runs (name)": "reads all of runs",
    "ALTER TABLE runs ADD CONSTRAINT x CHECK (name <> '')": "reads all of runs",
    "ALTER TABLE runs ALTER COLUMN start_time SET NOT NULL": "reads all of runs",
    "ALTER TABLE tokens ADD FOREIGN KEY (label) REFERENCES users": "reads all of tokens",
    "UPDATE runs SET name = name": "reads all of runs",
}
BREAKING = {
    "DROP TABLE uploads CASCADE": "drops uploads",
    "DROP VIEW link_views.uploads": "drops link_views.uploads",
    "ALTER TABLE uploads RENAME TO transfers": "drops uploads",
    "ALTER TABLE sign_in_links DROP COLUMN used_at": "drops sign_in_links.used_at",
    "ALTER TABLE members ALTER COLUMN role TYPE varchar(9)": "members.role has another type",
    "ALTER TABLE runs ALTER COLUMN start_time SET NOT NULL": "runs.start_time is required",
    "ALTER TABLE tokens ALTER COLUMN created_at DROP DEFAULT": "tokens.created_at has no default",
    "ALTER TABLE runs ADD COLUMN x text NOT NULL": "runs.x is required",
    "ALTER TABLE runs ADD CONSTRAINT x CHECK (name <> '') NOT VALID": "x restricts runs",
    "CREATE UNIQUE INDEX x ON runs (name)": "x restricts runs",
}
HARMLESS = """
    ALTER TABLE runs ADD COLUMN x text, ADD COLUMN y integer NOT NULL DEFAULT 0,
        ADD CONSTRAINT xs CHECK (x <> '') NOT VALID;
    CREATE TABLE notes (note_id bigserial PRIMARY KEY, user_id text NOT NULL REFERENCES users);
    CREATE VIEW link_views.notes AS SELECT note_id FROM notes;
"""


@pytest.fixture
def changes(database_url):
    """A function that tries statements; it returns both kinds of problems."""
    engine = make_engine(database_url, poolclass=NullPool)

    def changes(statements):
        with engine.connect() as db:
            before = read_schema(db)
            db.execute(text(statements))
            return lock_problems(db, before), break_problems(before, read_schema(db))

    return changes


def test_slow_change_is_found(changes):
    for statement, problem in SLOW.items():
        assert problem in changes(statement)[0], statement


def test_breaking_change_is_found(changes):
    for statement, problem in BREAKING.items():
        assert problem in changes(statement)[1], statement


def test_harmless_change_has_no_problem(changes):
    assert changes(HARMLESS) == ([], [])


def test_index_of_unique_columns_restricts_nothing(changes):
    index = "CREATE UNIQUE INDEX x ON time_series (experiment_id, run_id, tag_id) INCLUDE (count)"
    assert changes(index)[1] == []
