"""The embedded PostgreSQL and SeaweedFS: durable, closed to others, and cleaned up after any kill."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from support.programs import require_namespace
from support.servers import choose_directory, s3_client
from support.small_disk import on_small_disk
from support.subprocesses import run_to_end
from support.waiting import wait_until
from tbservice.auth.secrets import secret_digest
from tbservice.auth.tokens import create_owner_token
from tbservice.db.database import Database
from tbservice.errors import StartupError
from tbservice.local.embedded import subprocesses
from tbservice.local.embedded.accounts import find_unprivileged_account
from tbservice.local.embedded.data_directory import FREE_BYTES_MIN, DataDirectory
from tbservice.local.embedded.instance import Instance, make_settings
from tbservice.local.embedded.ports import LOOPBACK, choose_ports, release_ports
from tbservice.local.embedded.postgres import Postgres, copy_programs, find_programs
from tbservice.local.embedded.seaweedfs import SeaweedFS, is_port_usable
from tbservice.local.service import prepare
from tbservice.types.identifiers import WorkspaceId

NOBODY = pwd.getpwnam("nobody").pw_uid
WORKSPACE = WorkspaceId(1)
HOLD_INSTANCE = """
import sys, time
from pathlib import Path
from tbservice.local.embedded.instance import Instance
with Instance(Path(sys.argv[1])) as instance:
    print(instance.postgres.url(), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path():
    """A short directory name that every account can reach, which the fallback for root needs."""
    # Not tmp_path, which is closed to other accounts.
    directory = choose_directory() / f"tbhub-{os.getpid()}-{time.monotonic_ns()}"
    directory.mkdir(mode=0o755)
    yield directory / "data"
    shutil.rmtree(directory)


def settings_of(instance):
    return make_settings(instance, host=LOOPBACK, port=0, public_url="http://127.0.0.1")


def commit_number(instance, number):
    """Commit a row and an object."""
    with psycopg.connect(instance.postgres.url()) as db:
        db.execute("CREATE TABLE IF NOT EXISTS kept (number integer)")
        db.execute("INSERT INTO kept VALUES (%s)", [number])
    with contextlib.closing(s3_client(settings_of(instance))) as client:
        client.put_object(Bucket="tbhub", Key=f"kept/{number}", Body=b"%d" % number)


def read_numbers(instance):
    """Return the numbers that both servers hold."""
    with psycopg.connect(instance.postgres.url()) as db:
        rows = [row[0] for row in db.execute("SELECT number FROM kept ORDER BY number")]
    with contextlib.closing(s3_client(settings_of(instance))) as client:
        bodies = [
            int(client.get_object(Bucket="tbhub", Key=f"kept/{row}")["Body"].read()) for row in rows
        ]
    assert rows == bodies
    return rows


@pytest.mark.plain("is about the PostgreSQL that `tbservice up` starts")
def test_service_gets_ordinary_role_and_durable_database(servers):
    with psycopg.connect(servers.instance.postgres.url()) as db:
        role = db.execute(
            "SELECT rolsuper, rolbypassrls, rolcreatedb FROM pg_roles WHERE rolname = current_user"
        )
        assert role.fetchone() == (False, False, False)
        for name, value in {
            "fsync": "on",
            "synchronous_commit": "on",
            "data_checksums": "on",
            "server_encoding": "UTF8",
            "wal_compression": "pglz",
            "listen_addresses": LOOPBACK,
        }.items():
            assert db.execute("SELECT current_setting(%s)", [name]).fetchone() == (value,)
        locale = db.execute("SELECT datcollate FROM pg_database WHERE datname = current_database()")
        assert locale.fetchone() == ("C",)
        assert db.info.server_version // 10_000 == 18


@pytest.mark.plain("is about the PostgreSQL that `tbservice up` starts")
def test_postgres_refuses_wrong_password(servers):
    url = servers.instance.postgres.url()
    wrong = url.replace(servers.instance.directory.secrets.tbhub_password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_secrets_and_files_are_shut_to_other_accounts(servers):
    directory = servers.instance.directory.path
    # Others may pass through where PostgreSQL runs as another account.
    assert stat.S_IMODE(directory.stat().st_mode) & ~stat.S_IXOTH == 0o700
    assert stat.S_IMODE((directory / "secrets.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((directory / "postgres").stat().st_mode) == 0o700


def start_as_before_mutual_tls(path, monkeypatch):
    """Commit 1 with SeaweedFS as earlier versions started it; return the ports."""
    environment = SeaweedFS._environment

    def older(self):
        return {
            name: value
            for name, value in environment(self).items()
            if "GRPC" not in name and "HTTPS" not in name
        }

    with monkeypatch.context() as patch:
        patch.setattr(SeaweedFS, "_environment", older)
        with Instance(path) as instance:
            commit_number(instance, 1)
    (path / "seaweedfs.pem").unlink()
    return instance.directory.saved_ports()


def test_embedded_data_survives_upgrade_taken_ports_and_kill(path, monkeypatch):
    before = start_as_before_mutual_tls(path, monkeypatch)
    with ExitStack() as others:
        for name in ("postgres", "volume"):
            others.enter_context(socket.create_server((LOOPBACK, before[name])))
        with Instance(path) as instance:
            assert read_numbers(instance) == [1]
            commit_number(instance, 2)
            for child in instance.children:
                child._process.kill()
                child._process.wait()
            with pytest.raises(StartupError, match="stopped with exit code -9"):
                instance.check()
    after = DataDirectory.attach(path).saved_ports()
    assert {after["postgres"], after["volume"]}.isdisjoint(before.values())
    with Instance(path) as instance:
        assert read_numbers(instance) == [1, 2]


@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone tells a process that its parent died"
)
def test_both_servers_of_ordinary_user_end_with_their_parent(path):
    """In a user namespace that maps nobody to the test's user, the process is an ordinary user."""
    require_namespace()
    script = "import os; assert os.geteuid() != 0\n" + HOLD_INSTANCE
    options = [] if os.geteuid() != 0 else ["--namespace-uid", str(NOBODY)]
    command = subprocesses.launch_command([sys.executable, "-c", script, path], options)
    parent = subprocess.Popen(command, stdout=subprocess.PIPE)
    with parent.stdout as output:
        assert output.readline().startswith(b"postgresql://")
    locks = [path / "run" / f"{name}.pid" for name in ("postgres", "seaweedfs")]
    assert all(subprocesses.find_lock_holder(lock) for lock in locks)
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(subprocesses.find_lock_holder(lock) for lock in locks))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another account to run PostgreSQL as")
def test_embedded_postgres_of_root_runs_as_other_account(
    path,
):
    with Instance(path, find_unprivileged_account()) as instance:
        assert (path / "postgres").stat().st_uid == find_unprivileged_account().uid
        commit_number(instance, 1)
    with Instance(path) as instance:
        assert (path / "postgres").stat().st_uid in (0, find_unprivileged_account().uid)
        assert read_numbers(instance) == [1]


def test_copy_of_programs_works_apart_from_wheel(tmp_path):
    require_namespace()
    programs = copy_programs(find_programs(), tmp_path / "programs")
    command = [
        programs / "initdb",
        "-D",
        tmp_path / "files",
        "-U",
        "postgres",
        "--no-sync",
        "--locale=C",
    ]
    options = [] if os.geteuid() != 0 else ["--namespace-uid", str(NOBODY)]
    done = run_to_end(subprocesses.launch_command(command, options))
    assert done.returncode == 0, done.stderr


def test_process_that_killed_parent_left_behind_is_stopped(tmp_path):
    lock = tmp_path / "left.pid"
    command = subprocesses.launch_command(
        [sys.executable, "-c", "import time; time.sleep(60)"], ["--lock", str(lock)]
    )
    left = subprocess.Popen(command)
    wait_until(lambda: subprocesses.find_lock_holder(lock))
    subprocesses.stop_stale(lock, subprocesses.StopPolicy(signal.SIGTERM, 5))
    assert left.wait(60) == -signal.SIGTERM


def test_process_that_ignores_request_to_stop_is_killed(tmp_path):
    lock = tmp_path / "left.pid"
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set', flush=True); time.sleep(60)"
    command = subprocesses.launch_command([sys.executable, "-c", script], ["--lock", str(lock)])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as left:
        left.stdout.readline()
        subprocesses.stop_stale(lock, subprocesses.StopPolicy(signal.SIGTERM, 0.2))
        assert left.wait(60) == -signal.SIGKILL


def test_process_that_only_has_same_id_is_left_alone(tmp_path):
    lock = tmp_path / "old.pid"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        lock.write_text(f"{other.pid}\n")
        subprocesses.stop_stale(lock, subprocesses.StopPolicy(signal.SIGKILL, 1))
        assert other.poll() is None
        other.kill()


def test_embedded_postgres_ignores_stale_pid_file(
    path,
):
    directory = DataDirectory.open(path)
    server = Postgres(directory, choose_ports(["postgres"], {})["postgres"])
    for _start in range(2):
        child = server.start()
        server.wait_ready(child)
        child.stop()
        pid_file = path / "postgres" / "postmaster.pid"
        pid_file.write_text(f"{os.getpid()}\n{path / 'postgres'}\n0\n5432\n\n\n0 0\nready\n")
    directory.close()


def test_second_instance_on_same_directory_is_told_who_has_it(tmp_path):
    first = DataDirectory.open(tmp_path / "data")
    with pytest.raises(
        StartupError, match=rf"another tbservice \(process {os.getpid()}\) is running"
    ):
        DataDirectory.open(tmp_path / "data")
    first.close()
    DataDirectory.open(tmp_path / "data").close()


def test_data_directory_made_by_hand_is_shut_to_others(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    DataDirectory.open(tmp_path / "data").close()
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) & 0o066 == 0


def test_embedded_refuses_foreign_directory_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StartupError, match="contains other files"):
        DataDirectory.open(tmp_path)
    with pytest.raises(StartupError, match="is a file"):
        DataDirectory.open(tmp_path / "thesis.tex")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_database_without_its_secrets_is_refused(tmp_path):
    DataDirectory.open(tmp_path / "data").close()
    (tmp_path / "data" / "postgres").mkdir()
    (tmp_path / "data" / "secrets.json").unlink()
    with pytest.raises(StartupError, match=r"secrets\.json is missing"):
        DataDirectory.open(tmp_path / "data")


def test_files_of_another_postgresql_are_refused(tmp_path):
    DataDirectory.open(tmp_path / "data").close()
    (tmp_path / "data" / "postgres").mkdir()
    (tmp_path / "data" / "postgres" / "PG_VERSION").write_text("19\n")
    with pytest.raises(StartupError, match="was created by PostgreSQL 19, and this is 18"):
        Instance(tmp_path / "data")
    DataDirectory.open(tmp_path / "data").close()  # it was left unlocked


def test_directory_that_cannot_be_written_is_one_clear_line(tmp_path):
    require_namespace()
    (tmp_path / "shut").mkdir(mode=0o500)
    assert refusal_of_an_ordinary_user(tmp_path / "shut" / "data") == (
        f"{tmp_path}/shut/data cannot be written (Permission denied): make it writable, or choose another directory "
        "with --data-dir"
    )


def test_disk_with_too_little_room_is_one_clear_line(tmp_path):
    script = f"from support.open_data_dir import refusal; print(refusal('{tmp_path}/small/data'))"
    command = on_small_disk(tmp_path / "small", FREE_BYTES_MIN // 2)
    assert "MB free and 256 MB are needed" in run_refusal([*command, sys.executable, "-c", script])


def refusal_of_an_ordinary_user(path):
    script = f"from support.open_data_dir import refusal; print(refusal({str(path)!r}))"
    options = [] if os.geteuid() != 0 else ["--namespace-uid", str(NOBODY)]
    return run_refusal(subprocesses.launch_command([sys.executable, "-c", script], options))


def run_refusal(command):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = run_to_end(command, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_ports_are_kept_unless_another_process_has_them():
    first = choose_ports(["a", "b"], {})
    assert choose_ports(["a", "b"], first) == first
    with socket.socket() as taken:
        taken.bind((LOOPBACK, first["a"]))
        taken.listen()
        second = choose_ports(["a", "b"], first)
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]


@pytest.mark.skipif(sys.platform != "linux", reason="the names of claims are Linux's")
def test_ports_of_one_process_are_chosen_by_no_other():
    def others(ports):
        source = f"""
from tbservice.local.embedded.ports import choose_ports
print(choose_ports(["a"], {ports!r})["a"])
"""
        return int(subprocess.check_output([sys.executable, "-c", source]))

    ports = choose_ports(["a"], {})
    assert others(ports) != ports["a"]
    release_ports(ports.values())
    assert others(ports) == ports["a"]


def test_reason_of_stopped_server_is_no_stack_frame(tmp_path):
    log = tmp_path / "log"
    log.write_text("F1123 07:00:00.000000 mini.go:1 of an earlier start\n")
    earlier_bytes = log.stat().st_size
    with log.open("a") as file:
        file.write(
            "I1124 05:48:10.1 mini.go:1244 Volume is ready\n"
            "F1124 05:48:11.1 mini.go:1459 Admin server readiness check failed\n"
            "goroutine 1 [running]:\n\tmini.go:1459 +0x1d\n"
        )
    reason = "F1124 05:48:11.1 mini.go:1459 Admin server readiness check failed"
    assert subprocesses.find_reason(log, earlier_bytes) == reason
    log.write_text("killed\n")
    assert subprocesses.find_reason(log) == "killed"


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can leave something behind in another's name"
)
def test_embedded_skips_port_with_stale_socket():
    port = choose_ports(["a"], {})["a"]
    left = Path(f"/tmp/seaweedfs-s3-grpc-{port}.sock")  # noqa: S108 - SeaweedFS's own choice of place
    left.touch()
    try:
        assert choose_ports(["a"], {"a": port}, is_port_usable) == {"a": port}
        os.chown(left, NOBODY, NOBODY)
        assert choose_ports(["a"], {"a": port}, is_port_usable) != {"a": port}
    finally:
        left.unlink()


def test_program_does_not_start_when_its_parent_is_already_gone(tmp_path):
    options = ["--death-signal", str(int(signal.SIGTERM)), "--parent", "1"]
    command = subprocesses.launch_command([sys.executable, "-c", "print('ran')"], options)
    done = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")


def test_start_keeps_token_in_use_and_replaces_ended_one(path, monkeypatch):
    config = path.parent / "config.toml"
    monkeypatch.setenv("TBHUB_CONFIG", str(config))
    with Instance(path) as instance, ExitStack() as cleanup:

        def start():
            return prepare(instance, "http://127.0.0.1:6060", [].append).token

        def configured():
            return tomllib.loads(config.read_text())["token"]

        def revoke(token):
            revoking = text("UPDATE tokens SET revoked_at = now() WHERE digest = :digest")
            with database.transaction(WORKSPACE) as db:
                assert db.execute(revoking, {"digest": secret_digest(token)}).rowcount == 1

        owner = start()
        assert (configured(), start()) == (owner, owner)
        database = Database(instance.postgres.url(), 1)
        cleanup.callback(database.close)
        with database.transaction(WORKSPACE) as db:
            other = create_owner_token(db, WORKSPACE, "not of tbservice up")[1]
        config.write_text(config.read_text().replace(owner, other))
        assert (start(), configured()) == (owner, other)

        revoke(other)
        assert (start(), configured()) == (owner, owner)
        revoke(owner)
        assert start() == configured() != owner
