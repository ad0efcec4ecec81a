"""The migrations on a real PostgreSQL, as the ordinary role that owns the database."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool

from support.later_migrations import Migrations
from support.uploading import wait_until
from tbservice import limits
from tbservice.auth.tables import workspaces
from tbservice.db import migrate, schema_versions
from tbservice.db.database import Database
from tbservice.db.engine import make_engine
from tbservice.db.schema import SchemaMismatch, check_schema
from tbservice.errors import StartupError

pytestmark = pytest.mark.own_database

LATER = ["9001_notes", "9002_series_note"]
"""Later migrations of these tests, after any real one; the second one locks `time_series`."""


def missing(url):
    with make_engine(url, poolclass=NullPool).connect() as db:
        return [migration.name for migration in schema_versions.list_missing_migrations(db)]


def test_migrations_missing_are_named_until_upgrade(empty_database_url):
    names = missing(empty_database_url)
    assert names[0] == "0001_schema"
    assert migrate.upgrade(empty_database_url) == names
    assert missing(empty_database_url) == []


def test_upgrading_again_does_nothing(owner_url):
    assert migrate.upgrade(owner_url) == []


@pytest.fixture
def migrations(tmp_path, monkeypatch):
    """The migrations of this program, to which the test adds others."""
    return Migrations(tmp_path / "migrations", monkeypatch)


@pytest.fixture
def old_database_url(owner_url, migrations):
    """The URL of a database that lacks the migrations LATER, which are files of this program."""
    notes = 'CREATE TABLE notes (experiment_id text COLLATE "C", note text)'
    migrations.add("9001_notes", notes)
    statement = "ALTER TABLE time_series ADD COLUMN note text"
    migrations.add("9002_series_note", statement, LOCKS={"time_series": "ACCESS EXCLUSIVE"})
    return owner_url


def test_migrate_behind_reader_lets_writers_pass(
    old_database_url, monkeypatch, capsys, count_waiting
):
    monkeypatch.setattr(limits, "MIGRATE_LOCK_SECONDS_MAX", 0.5)
    monkeypatch.setattr(migrate, "MIGRATE_PAUSE_SECONDS", 0.5)
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(old_database_url, application_name="an export") as reader,
        psycopg.connect(old_database_url, autocommit=True) as writer,
    ):
        reader.execute(
            "SELECT count(*) FROM time_series"
        )  # an export's snapshot: its lock lasts until it commits
        migrated = threads.submit(migrate.upgrade, old_database_url)
        wait_until(count_waiting)
        writer.execute("SET statement_timeout = '30s'")
        writer.execute("DELETE FROM time_series")  # with the reader still there
        said = wait_until(lambda: capsys.readouterr().err)
        reader.commit()
    assert migrated.result() == LATER
    assert missing(old_database_url) == []
    assert re.search(
        r"^tbservice: 9002_series_note: a table is in use \(process \d+, an export, "
        # The writer may be there by then, too.
        r"idle in transaction, transaction \d+ s, query \d+ s old[^)]*\); trying again in 0\.5 s$",
        said,
        re.MULTILINE,
    )


def test_migrate_gives_up_with_words_on_what_to_do(old_database_url, monkeypatch):
    monkeypatch.setattr(limits, "MIGRATE_LOCK_SECONDS_MAX", 0.1)
    monkeypatch.setattr(migrate, "MIGRATE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(migrate, "MIGRATE_ATTEMPTS_MAX", 2)
    with psycopg.connect(old_database_url) as reader:
        reader.execute("SELECT count(*) FROM time_series")
        with pytest.raises(
            StartupError,
            match=r"9002.* nothing.* 2 attempts \(process .*\); wait .* migrate again",
        ):
            migrate.upgrade(old_database_url)
    assert missing(old_database_url) == ["9002_series_note"]


def test_migrate_ends_statement_that_keeps_locks(owner_url, migrations, monkeypatch):
    monkeypatch.setattr(migrate, "MIGRATE_STATEMENT_SECONDS_MAX", 0.2)
    migrations.add("9001_slow", "SELECT pg_sleep(60)")
    with pytest.raises(StartupError, match=r"9001_slow failed .* statement timeout"):
        migrate.upgrade(owner_url)
    assert missing(owner_url) == ["9001_slow"]


def add_index(migrations):
    migrations.add(
        "9001_index",
        "DROP INDEX CONCURRENTLY IF EXISTS runs_by_note",
        "CREATE INDEX CONCURRENTLY runs_by_note ON runs (workspace_id)",
        CONCURRENT=True,
        LOCKS={"runs": "SHARE UPDATE EXCLUSIVE"},
    )


def is_index_valid(db):
    row = db.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('runs_by_note')"
    ).fetchone()
    return row and row[0]


def test_index_is_built_once_beside_writers(owner_url, migrations, count_waiting):
    add_index(migrations)
    with (
        ThreadPoolExecutor(2) as threads,
        psycopg.connect(owner_url) as writer,
        psycopg.connect(owner_url, autocommit=True) as other,
    ):
        writer.execute("DELETE FROM runs WHERE experiment_id = 'one'")
        results = threads.map(migrate.upgrade, [owner_url] * 2)
        wait_until(count_waiting)  # for the writer
        other.execute("SET statement_timeout = '30s'")
        other.execute("DELETE FROM runs WHERE experiment_id = 'another'")  # which does not wait
        assert not is_index_valid(other)
        writer.commit()
        assert sorted(results) == [[], ["9001_index"]]
        assert is_index_valid(other)


def test_index_left_invalid_is_replaced_by_next_attempt(owner_url, migrations, monkeypatch):
    add_index(migrations)
    with psycopg.connect(owner_url) as writer, monkeypatch.context() as shortly:
        shortly.setattr(migrate, "MIGRATE_CONCURRENT_SECONDS_MAX", 2)
        writer.execute("DELETE FROM runs WHERE experiment_id = 'one'")
        with pytest.raises(StartupError, match="9001_index failed and can be repeated"):
            migrate.upgrade(owner_url)
    with psycopg.connect(owner_url) as db:
        assert is_index_valid(db) is False
    assert migrate.upgrade(owner_url) == ["9001_index"]
    with psycopg.connect(owner_url) as db:
        assert is_index_valid(db)


def test_migrate_twice_at_once_works_once(empty_database_url):
    with ThreadPoolExecutor(3) as threads:
        results = threads.map(migrate.upgrade, [empty_database_url] * 3)
    assert sorted(map(bool, results)) == [False, False, True]


def set_revision(url, revision):
    with psycopg.connect(url) as db:
        db.execute("UPDATE alembic_version SET version_num = %s", [revision])


@pytest.fixture
def check(database_url):
    """Return the check of the schema by a server that starts."""

    def check():
        database = Database(database_url, 1)
        try:
            return check_schema(database)
        finally:
            database.close()

    return check


def test_newer_schema_is_served_until_it_requires_more(old_database_url, migrations, check):
    migrate.upgrade(old_database_url)
    migrations.add("9003_end", "DROP TABLE notes", REQUIRED_REVISION="9002_series_note")
    migrations.add("9004_after", "SELECT 1")
    assert migrate.upgrade(old_database_url) == ["9003_end", "9004_after"]
    for name in ("9004_after", "9003_end"):
        migrations.remove(name)
        assert check() == []
        assert migrate.upgrade(old_database_url) == []
    migrations.remove("9002_series_note")
    with pytest.raises(SchemaMismatch, match=r"migration 9004_after, .* install a newer version"):
        check()
    with pytest.raises(schema_versions.UnknownMigration, match="9004_after"):
        migrate.upgrade(old_database_url)


def test_unknown_migration_between_known_ones_is_refused(owner_url):
    set_revision(owner_url, "0002_of_a_fork")
    with pytest.raises(schema_versions.UnknownMigration, match="0002_of_a_fork"):
        missing(owner_url)


@pytest.mark.usefixtures("old_database_url")
def test_older_schema_is_served_without_what_is_not_needed(check, monkeypatch):
    assert check() == LATER
    monkeypatch.setattr("tbservice.db.schema.OLDEST_SCHEMA", "9001_notes")
    with pytest.raises(SchemaMismatch, match="lacks the migrations 9001_notes, 9002_series_note:"):
        check()


def test_migrate_refuses_database_of_development_version(owner_url):
    for revision in [f"{number:04}" for number in range(1, 11)]:
        set_revision(owner_url, revision)
        with pytest.raises(
            schema_versions.UnknownMigration,
            match=rf"before 0\.1\.0 \(migration {revision}\).*tbupload export.*empty database",
        ):
            migrate.upgrade(owner_url)


def test_migrations_run_as_role_without_privileges(owner_url):
    with psycopg.connect(owner_url) as db:
        role = db.execute("""
            SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles
            WHERE rolname = current_user
        """)
        assert role.fetchone() == (False, False, False)


def test_sample_slots_have_ranks_of_halving_frequency(owner_url):
    with psycopg.connect(owner_url) as db:
        counts = dict(
            db.execute("SELECT rank, count(*) FROM sample_slots GROUP BY rank").fetchall()
        )
    assert sum(counts.values()) == 65_536
    assert all(1.8 < counts[rank + 1] / counts[rank] < 2.2 for rank in range(9, 14))


def test_migration_revision_is_its_file_name():
    scripts = list(ScriptDirectory(schema_versions.find_migrations()).walk_revisions())[::-1]
    names = [Path(script.path).stem for script in scripts]
    assert [script.revision for script in scripts] == names == sorted(names)
    assert [script.down_revision for script in scripts] == [None, *names[:-1]]
    assert max(map(len, names)) <= 32  # alembic_version.version_num is varchar(32)


def test_workspace_is_created_before_its_creator_has_a_column(empty_database_url):
    engine = make_engine(empty_database_url, poolclass=NullPool)
    for migration in schema_versions.list_migrations():
        if migration.name <= schema_versions.OLDEST_SCHEMA:
            with engine.begin() as db:
                migrate.apply(db, migration.name)
    with engine.begin() as db:
        workspace_id = workspaces.create(db, "a team's", "A" * 22)
        assert workspaces.find_creator(db, workspace_id) is None
