"""A service to attack: two workspaces, the attacker's and the victim's, and a new worker for each
case.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import psutil
from attacking import experiments
from attacking.target import Target
from attacking.victim import Victim
from bench import Bench, say
from machine import resident_memory

from support.batches import ApiClient
from support.people import new_person
from support.servers import LiveService, Servers, live_service, new_owner
from support.uploading import Reader
from tbservice.auth import people, tokens
from tbservice.auth.tables import workspaces
from tbservice.db.database import Database
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.types.people import Person

STOP_SECONDS_MAX = 20
MIB = 1024 * 1024
_PROGRAM = """
import os, sys
os.setsid()
from tbservice.cli import main
sys.exit(main(["serve"]))
"""
"""A session of its own: Linux divides the processor by sessions (`sched_autogroup_enabled`), and
clients are on other machines in truth.
"""


@dataclass
class Serving:
    """A running worker."""

    live: LiveService
    grpc_port: int

    @property
    def pid(self) -> int:
        """Return the process id of the worker."""
        return self.live.process.pid

    def memory(self) -> tuple[int, int]:
        """Return resident bytes of the worker and, summed, of the processes it has started."""
        return resident_memory(self.pid), sum(
            resident_memory(child.pid) for child in self._children()
        )

    def stop(self) -> None:
        """Stop it with SIGTERM, with SIGKILL after STOP_SECONDS_MAX."""
        process = self.live.process
        children = self._children()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _, alive = psutil.wait_procs(children, 2)
        for child in alive:
            say(f"a process of the worker outlived it: {child.pid}")
            child.kill()

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


@dataclass
class World:
    """Two workspaces on the bench's servers; experiments are written when an attack first wants
    them.
    """

    servers: Servers
    settings: object
    directory: Path
    scale: float
    attacker: str
    victim: str
    owner: Person
    """Invited the victim, and another member, who attacks with accounts invited in turn."""

    ids: dict[str, str] = field(default_factory=dict)
    append_token: str = ""
    _count: int = 0

    @cached_property
    def workspace_tokens(self) -> list[str]:
        """Tokens of 100 workspaces that one person has created; an owner is asked for no more."""
        with self._database() as database:
            person = new_person(database)
            return [_new_owner_of(database, person) for _ in range(100)]

    @cached_property
    def invited_tokens(self) -> list[str]:
        """Tokens of workspaces of 60 accounts whom a member has invited, as the owner the member."""
        with self._database() as database:
            member = _invite(database, self.owner)
            return [_new_owner_of(database, _invite(database, member)) for _ in range(60)]

    @contextmanager
    def _database(self) -> Iterator[Database]:
        url = self.settings.database_url.get_secret_value()  # type: ignore[attr-defined]  # Settings
        with closing(Database(url, 1)) as database:
            yield database

    @contextmanager
    def serving(self) -> Iterator[Serving]:
        """Run one worker with default settings while the block lasts."""
        self._count += 1
        ports = choose_ports(["service", "grpc"], {})
        log = self.directory / f"service_{self._count}.log"
        grpc_port = str(ports["grpc"])
        with live_service(
            self.settings,
            log,
            port=ports["service"],
            program=("-c", _PROGRAM),
            TBHUB_GRPC_PORT=grpc_port,
        ) as live:
            serving = Serving(live, ports["grpc"])
            try:
                yield serving
            finally:
                if live.process.poll() is None:
                    serving.stop()

    def prepare(self, *names: str) -> None:
        """Write the attacker's experiments of these names, and the victim's, where they are not yet
        there.
        """
        missing = [name for name in dict.fromkeys((*names, "small")) if name not in self.ids]
        if not missing and "private" in self.ids:
            return
        with self.serving() as serving:
            attacker = ApiClient(Reader(serving.live.url, self.attacker).http, self.attacker)
            for name in missing:
                say(f"writing the attacker's experiment {name!r}")
                self.ids[name] = experiments.write(attacker, name, self.scale, self.directory)
            self.append_token = self.append_token or attacker.new_token(self.ids["small"], "append")
            if "private" not in self.ids:
                victim = ApiClient(Reader(serving.live.url, self.victim).http, self.victim)
                for name in ("private", "link", "written"):
                    self.ids[name] = experiments.write(victim, name, self.scale, self.directory)
            experiments.wait_for_merges(self.servers, self.settings)

    def target(self, serving: Serving, scale: float, *, is_owner: bool = False) -> Target:
        """Return what an attacker knows of a running worker; `scale` multiplies its counts of
        requests.
        """
        port = int(serving.live.url.rpartition(":")[2])
        ids = {
            name: self.ids[name] for name in self.ids if name not in {"private", "link", "written"}
        }
        token = self.attacker if is_owner else ""
        return Target(
            LOOPBACK,
            port,
            token,
            self.append_token,
            ids,
            scale,
            workspace_tokens=self.workspace_tokens,
            invited_tokens=self.invited_tokens,
            grpc_port=serving.grpc_port,
        )

    def victim_of(self, serving: Serving) -> Victim:
        """Return the victim of a running worker."""
        port = int(serving.live.url.rpartition(":")[2])
        return Victim(
            LOOPBACK, port, self.victim, self.ids["private"], self.ids["link"], self.ids["written"]
        )


@contextmanager
def new_world(bench: Bench, scale: float) -> Iterator[World]:
    """Make the two workspaces in a new database."""
    directory = bench.directory / "world"
    directory.mkdir()
    with bench.servers.database() as url, bench.servers.settings(url) as settings:
        with closing(Database(url, 1)) as database:
            owner = new_person(database)
            victim = _new_owner_of(database, _invite(database, owner))
        yield World(bench.servers, settings, directory, scale, new_owner(url), victim, owner)


def _invite(database: Database, inviter: Person) -> Person:
    """Make an account by an invitation."""
    with database.transaction() as db:
        return people.create_by_invitation(db, "", "somebody", inviter)


def _new_owner_of(database: Database, person: Person) -> str:
    """Make a workspace that a person created; return a token of it."""
    with database.transaction() as db:
        workspace_id = workspaces.create(db, "a workspace", person.user_id)
    with database.transaction(workspace_id) as db:
        return tokens.create_owner_token(db, workspace_id, "a benchmark")[1]


class Attacker:
    """An attack in a process of its own."""

    def __init__(self, name: str, target: Target, seconds: int) -> None:
        program = str(Path(__file__).parent)
        self._printed: str | None = None
        self._process = subprocess.Popen(
            [sys.executable, program, name, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        # At the lowest priority: attackers are on other machines in truth. Linux divides the
        # processor by sessions (`sched_autogroup_enabled`), and by processes where it does not.
        os.setpriority(os.PRIO_PROCESS, self.pid, 19)
        with suppress(FileNotFoundError):
            Path(f"/proc/{self.pid}/autogroup").write_text("19")
        assert self._process.stdin is not None
        self._process.stdin.write(target.to_json())
        self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def begin_stop(self) -> None:
        """Ask it to end, and do not wait."""
        if self.is_running():
            self._process.terminate()

    def is_running(self) -> bool:
        """Return whether it is still at it."""
        return self._process.poll() is None

    def stop(self) -> str:
        """End it, and return its tally as JSON, empty when it had none; repeating it changes
        nothing.
        """
        if self._printed is not None:
            return self._printed
        self.begin_stop()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            self._printed = printed.read().strip()
        return self._printed
