"""The whole path of an upload with a proxy in every joint: tbupload, HTTP, the service, PostgreSQL
and SeaweedFS.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from support.complete_logdir import RESTARTED
from support.http_faults import HttpFaults, http_faults
from support.postgres_faults import PostgresFaults, postgres_faults
from support.servers import LiveService, Servers, database_name, live_service, new_owner
from support.stored_state import runs_with_duplicates, stored_state
from support.uploading import Ended, Reader, Uploader
from tbservice.local.embedded.ports import choose_ports
from tbupload.cli import main

SMALL_SERVICE = Path(__file__).with_name("small_service.py")


@dataclass(frozen=True)
class FaultEnv:
    """A service with small limits, and the proxies around it: `http` before it, `sql` and `objects`
    behind it.
    """

    servers: Servers
    database_url: str
    live: LiveService
    http: HttpFaults
    sql: PostgresFaults
    objects: HttpFaults
    reader: Reader
    directory: Path

    def person(self) -> Tenant:
        """Somebody with a workspace of their own, so that nobody's blobs are there already."""
        directory = Path(tempfile.mkdtemp(prefix="person-", dir=self.directory))
        return Tenant(self, new_owner(self.database_url), directory)

    def disarm(self) -> None:
        """Lets everything pass in every joint, when the calls under way have ended."""
        for proxy in (self.http, self.sql, self.objects):
            proxy.disarm()
        self.http.wait_idle()
        self.objects.wait_idle()


@dataclass(frozen=True)
class Tenant:
    """Uploads through the proxies into a workspace of their own, and reads past the first of them."""

    world: FaultEnv
    token: str
    directory: Path

    @property
    def uploader(self) -> Uploader:
        """`tbupload` as a process."""
        return Uploader(self.world.http.url, self.token, self.directory)

    def upload(self, logdir: Path, *arguments: object) -> Ended:
        """The command `tbupload --one-shot --json` within this process, which saves the start of
        another one.
        """
        out, err = io.StringIO(), io.StringIO()
        words = ["--logdir", logdir, "--one-shot", "--json", "--retry-timeout", 30, *arguments]
        with (
            _environment(self.uploader.environment()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main([str(word) for word in words])
        return Ended(code, out.getvalue(), err.getvalue())

    def stored(self, experiment_id: str) -> dict:
        """Everything that the read API gives, once nothing is under way any more and no fault is
        armed.
        """
        self.world.disarm()
        return stored_state(self._reader(), experiment_id)

    def experiments(self) -> list[str]:
        """The ids of all experiments there are, when no fault is armed any more."""
        self.world.disarm()
        listed = self._reader().http.get("/api/v1/experiments").json()["experiments"]
        return [one["experiment_id"] for one in listed]

    def runs_with_duplicates(self, experiment_id: str) -> set[str]:
        """The runs of which the server holds something twice or out of order."""
        name = database_name(self.world.database_url)
        with self.world.servers.instance.postgres.connect_as_superuser(name) as superuser:
            return runs_with_duplicates(superuser, experiment_id)

    def _reader(self) -> Reader:
        reader = self.world.reader  # one for all, because it takes longer to make than to use
        reader.http.headers["Authorization"] = f"Bearer {self.token}"
        return reader


@dataclass(frozen=True)
class CleanUpload:
    """What an upload of a logdir without any fault says and stores."""

    logdir: Path
    done: dict
    stored: dict

    def check(self, person: Tenant, ended: Ended, *, says_all: bool = True) -> None:
        """An upload that says it is done has stored what the clean one stored, once, in the one
        experiment it made.
        """
        assert ended.code == 0, ended.err
        assert person.experiments() == [ended.experiment_id], "another experiment was made as well"
        self.check_stored(person, ended.experiment_id)
        if says_all:
            assert counts(ended.done) == counts(self.done), f"{ended.done} instead of {self.done}"

    def check_stored(
        self, person: Tenant, experiment_id: str, *, in_order: bool = True, same_files: bool = True
    ) -> None:
        """The experiment holds what the clean one holds, and, where one host sent all in order,
        nothing twice.

        Not with `same_files`: the streams may differ, as a host's file is not the one that another
        host has sent.
        """
        stored = person.stored(experiment_id)
        for kind, content in self.stored.items():
            assert stored[kind] == content or (kind == "streams" and not same_files), kind
        doubtful = person.runs_with_duplicates(experiment_id) - {RESTARTED}
        assert not in_order or not doubtful, f"points kept twice in the runs {doubtful}"


def counts(done: dict) -> dict:
    """The figures of a `done` line that do not depend on how often something was sent."""
    return {
        name: done[name]
        for name in ("scalars", "tensors", "blobs", "bytes", "runs", "series", "skipped")
    }


def clean_upload(world: FaultEnv, logdir: Path) -> CleanUpload:
    """Uploads the logdir with no fault in the way."""
    person = world.person()
    world.disarm()
    ended = person.upload(logdir)
    return CleanUpload(logdir, ended.done, person.stored(ended.experiment_id))


@contextmanager
def fault_env(servers: Servers, directory: Path, **environment: str):
    """A running World on a database and a bucket of its own; `environment` is the service's."""
    port = choose_ports(["service"], {})["service"]
    log = directory / "service.log"
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        postgres_faults(url) as sql,
        http_faults(settings.s3_endpoint) as objects,
        live_service(
            _behind(settings, sql, objects), port, log, program=[SMALL_SERVICE], **environment
        ) as live,
        http_faults(live.url) as http,
    ):
        reader = Reader(live.url, "")
        yield FaultEnv(servers, url, live, http, sql, objects, reader, directory)
        reader.http.close()
        http.wait_idle()


def _behind(settings, sql: PostgresFaults, objects: HttpFaults):
    return settings.model_copy(
        update={"database_url": SecretStr(sql.url), "s3_endpoint": objects.url}
    )


@contextmanager
def _environment(wanted: dict[str, str]):
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
