"""The migrations on a real PostgreSQL, as the ordinary role that owns the database."""

import shutil
import threading
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool

from support.uploading import wait_until
from tbservice import limits
from tbservice.errors import StartupError
from tbservice.store.pg import migrate
from tbservice.store.pg.engine import make_engine

pytestmark = pytest.mark.own_database

LATER_MIGRATION = """
from alembic import op

revision = {name!r}
down_revision = {previous!r}
branch_labels = None
depends_on = None


def upgrade():
    op.get_bind().exec_driver_sql({statement!r})
"""

LATER = {
    "9001_notes": "CREATE TABLE notes (note text)",
    "9002_series_note": "ALTER TABLE time_series ADD COLUMN note text",
}
"""Later migrations of these tests, after any real one; the second one locks `time_series`."""


def missing(url):
    with make_engine(url, poolclass=NullPool).connect() as db:
        return migrate.list_missing_migrations(db)


def test_migrations_missing_are_named_until_upgrade(empty_database_url):
    names = missing(empty_database_url)
    assert names[0] == "0001_schema"
    assert migrate.upgrade(empty_database_url) == names
    assert missing(empty_database_url) == []


def test_upgrading_again_does_nothing(database_url):
    assert migrate.upgrade(database_url) == []


@pytest.fixture
def old_database_url(database_url, tmp_path, monkeypatch):
    """The URL of a database that lacks the migrations LATER, which are files of this program."""
    directory = tmp_path / "migrations"
    shutil.copytree(migrate.find_migrations(), directory)
    previous = max(file.stem for file in (directory / "versions").glob("0*.py"))
    for name, statement in LATER.items():
        content = LATER_MIGRATION.format(name=name, previous=previous, statement=statement)
        (directory / "versions" / f"{name}.py").write_text(content)
        previous = name
    monkeypatch.setattr(migrate, "find_migrations", lambda: directory)
    return database_url


def is_waiting_for_a_lock(db):
    return db.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    ).fetchone() != (0,)


def test_migrate_behind_reader_lets_writers_pass(old_database_url, monkeypatch, capsys):
    monkeypatch.setattr(limits, "MIGRATE_LOCK_SECONDS_MAX", 0.5)
    monkeypatch.setattr(limits, "MIGRATE_PAUSE_SECONDS", 0.5)
    migrated = []
    thread = threading.Thread(target=lambda: migrated.extend(migrate.upgrade(old_database_url)))
    with (
        psycopg.connect(old_database_url) as reader,
        psycopg.connect(old_database_url, autocommit=True) as writer,
    ):
        reader.execute(
            "SELECT count(*) FROM time_series"
        )  # an export's snapshot: its lock lasts until it commits
        thread.start()
        wait_until(lambda: is_waiting_for_a_lock(writer))
        writer.execute("SET statement_timeout = '30s'")
        writer.execute("DELETE FROM time_series")  # with the reader still there
        reader.commit()
    thread.join()
    assert migrated == list(LATER)
    assert missing(old_database_url) == []
    assert "tbservice: a table is in use" in capsys.readouterr().err


def test_migrate_gives_up_with_words_on_what_to_do(old_database_url, monkeypatch):
    for name, value in (("LOCK_SECONDS_MAX", 0.1), ("PAUSE_SECONDS", 0.0), ("ATTEMPTS_MAX", 2)):
        monkeypatch.setattr(limits, f"MIGRATE_{name}", value)
    with psycopg.connect(old_database_url) as reader:
        reader.execute("SELECT count(*) FROM time_series")
        with pytest.raises(
            StartupError,
            match=r"2 attempts \(the oldest transaction is of .*\); wait .* migrate again",
        ):
            migrate.upgrade(old_database_url)
    assert missing(old_database_url) == list(LATER)
    with psycopg.connect(old_database_url) as db:
        assert db.execute("SELECT to_regclass('notes')").fetchone() == (None,)


def test_migrate_twice_at_once_works_once(empty_database_url):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(migrate.upgrade(empty_database_url)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(bool, results)) == [False, False, True]


def set_revision(url, revision):
    with psycopg.connect(url) as db:
        db.execute("UPDATE alembic_version SET version_num = %s", [revision])


def test_migrate_refuses_database_of_newer_program(database_url):
    set_revision(database_url, "9999_later")
    with pytest.raises(migrate.UnknownMigration, match=r"9999_later.* install a newer version"):
        missing(database_url)


@pytest.mark.parametrize("revision", [f"{number:04}" for number in range(1, 11)])
def test_migrate_refuses_database_of_development_version(database_url, revision):
    set_revision(database_url, revision)
    with pytest.raises(
        migrate.UnknownMigration,
        match=rf"before 0\.1\.0 \(migration {revision}\).*tbupload export.*empty database",
    ):
        migrate.upgrade(database_url)


def test_migrations_run_as_role_without_privileges(database_url):
    with psycopg.connect(database_url) as db:
        role = db.execute("""
            SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles
            WHERE rolname = current_user
        """)
        assert role.fetchone() == (False, False, False)


def test_sample_slots_have_ranks_of_halving_frequency(database_url):
    with psycopg.connect(database_url) as db:
        counts = dict(
            db.execute("SELECT rank, count(*) FROM sample_slots GROUP BY rank").fetchall()
        )
    assert sum(counts.values()) == 65_536
    assert all(1.8 < counts[rank + 1] / counts[rank] < 2.2 for rank in range(9, 14))


def test_migration_revision_is_its_file_name():
    scripts = list(ScriptDirectory(migrate.find_migrations()).walk_revisions())[::-1]
    names = [Path(script.path).stem for script in scripts]
    assert [script.revision for script in scripts] == names == sorted(names)
    assert [script.down_revision for script in scripts] == [None, *names[:-1]]
    assert max(map(len, names)) <= 32  # alembic_version.version_num is varchar(32)
