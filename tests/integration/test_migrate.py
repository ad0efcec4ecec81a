"""The migrations on a real PostgreSQL, as the ordinary role that owns the database."""

import threading
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine

from tbservice import migrate


def missing(url):
    with create_engine(migrate.driver_url(url), poolclass=NullPool).connect() as db:
        return migrate.missing_migrations(db)


def test_an_empty_database_lacks_every_migration_by_name_and_after_upgrade_none(empty_database_url):
    names = missing(empty_database_url)
    assert names[0] == "0001_first"
    assert migrate.upgrade(empty_database_url) == names
    assert missing(empty_database_url) == []


def test_upgrading_again_does_nothing(database_url):
    assert migrate.upgrade(database_url) == []


def test_two_processes_that_migrate_at_once_both_succeed_and_one_does_the_work(empty_database_url):
    results = []
    threads = [threading.Thread(target=lambda: results.append(migrate.upgrade(empty_database_url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(bool, results)) == [False, False, True]


def test_a_database_that_was_migrated_by_a_newer_program_is_refused(database_url):
    with psycopg.connect(database_url) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(migrate.UnknownMigration, match="9999"):
        missing(database_url)


def test_the_migrations_run_as_a_role_without_privileges(database_url):
    with psycopg.connect(database_url) as db:
        role = db.execute("SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = current_user")
        assert role.fetchone() == (False, False, False)


def test_every_sample_slot_has_a_rank_and_each_rank_is_about_half_of_the_one_above(database_url):
    with psycopg.connect(database_url) as db:
        counts = dict(db.execute("SELECT rank, count(*) FROM sample_slots GROUP BY rank").fetchall())
    assert sum(counts.values()) == 65_536
    assert all(1.8 < counts[rank + 1] / counts[rank] < 2.2 for rank in range(9, 14))


def test_each_migrations_file_is_numbered_as_its_revision_and_follows_the_one_before():
    scripts = list(ScriptDirectory(migrate.find_migrations()).walk_revisions())[::-1]
    numbers = [Path(script.path).name[:4] for script in scripts]
    assert [script.revision for script in scripts] == numbers == sorted(numbers)
    assert [script.down_revision for script in scripts] == [None, *numbers[:-1]]
