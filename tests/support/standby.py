"""A real standby of an embedded PostgreSQL, which can be cut off from its primary and promoted, and
restores.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

from psycopg import sql

from support.uploading import wait_until
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.instance import Instance
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.local.embedded.postgres import Postgres, find_programs


class Standby:
    """A hot standby that streams from its primary until it is cut off."""

    def __init__(self, postgres: Postgres) -> None:
        """Start it. `postgres` may be anything that starts and connects as a Postgres does."""
        self.postgres = postgres
        self._child = postgres.start()
        postgres.wait_ready(self._child)

    def stop(self) -> None:
        """Stop the server; its files remain."""
        self._child.request_stop()
        self._child.stop()

    def restart(self) -> None:
        """Start it again, and wait until it answers."""
        self._child = self.postgres.start()
        self.postgres.wait_ready(self._child)

    def execute(self, *statements: str) -> None:
        """Execute statements as the superuser."""
        with self.postgres.connect_as_superuser("postgres") as db:
            for statement in statements:
                db.execute(statement)

    def is_level_with(self, primary: Postgres) -> bool:
        """Whether everything that the primary has written was replayed here."""
        with primary.connect_as_superuser("postgres") as db:
            (written,) = db.execute("SELECT pg_current_wal_lsn()").fetchone()
        with self.postgres.connect_as_superuser("postgres") as db:
            return db.execute(
                "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [written]
            ).fetchone() == (True,)

    def cut_off(self) -> None:
        """Stop receiving: whatever the primary commits from now on is lost when this server is
        promoted.
        """
        with self.postgres.connect_as_superuser("postgres") as db:
            db.execute("ALTER SYSTEM SET primary_conninfo = ''")
            db.execute("SELECT pg_reload_conf()")
            wait_until(
                lambda: db.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() == (0,)
            )

    def promote(self) -> None:
        """Become a primary; return when writes are possible."""
        with self.postgres.connect_as_superuser("postgres") as db:
            assert db.execute("SELECT pg_promote()").fetchone() == (True,)


@contextmanager
def standby_of(instance: Instance, path: Path):
    """Run a Standby of the instance's PostgreSQL, with its files in `path`."""
    directory = DataDirectory.open(path)
    directory.secrets = instance.directory.secrets
    port = choose_ports(["standby"], {})["standby"]
    run_program(
        instance,
        "pg_basebackup",
        f"--pgdata={path / 'postgres'}",
        "--checkpoint=fast",
        "--write-recovery-conf",
    )
    standby = Standby(Postgres(directory, port))
    try:
        yield standby
    finally:
        standby.stop()
        directory.close()


def restore(instance: Instance, database: str, dump: Path) -> None:
    """Replace a database by a dump: restore it beside the database, end every connection, and
    rename both.
    """
    draft, old = f"{database}_draft", f"{database}_old"
    with instance.postgres.connect_as_superuser("postgres") as db:
        create = sql.SQL("CREATE DATABASE {} OWNER tbhub TEMPLATE template0").format(
            sql.Identifier(draft)
        )
        db.execute(create)
        run_program(instance, "pg_restore", f"--dbname={draft}", "--exit-on-error", str(dump))
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
        db.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(database))
        )
        db.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
            [database],
        )
        for before, after in ((database, old), (draft, database)):
            db.execute(rename.format(sql.Identifier(before), sql.Identifier(after)))
        db.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(old)))


def run_program(instance: Instance, program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's client programs as the superuser of the instance; fails with what it
    said.
    """
    environment = os.environ | {
        "PGHOST": LOOPBACK,
        "PGPORT": str(instance.postgres._port),
        "PGUSER": "postgres",
        "PGPASSWORD": instance.directory.secrets.postgres_password,
    }
    command = [find_programs() / program, *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
