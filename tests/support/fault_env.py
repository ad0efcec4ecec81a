"""The complete path of an upload with a proxy at every connection: tbupload, HTTP, the service,
PostgreSQL and SeaweedFS.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from support.complete_logdir import RESTARTED
from support.http_faults import HttpFaults, http_faults
from support.postgres_faults import PostgresFaults
from support.servers import LiveService, Servers, database_name, live_service, new_owner
from support.stored_state import runs_with_duplicates, stored_state
from support.uploading import Ended, Reader, Uploader


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

    @property
    def is_cluster(self) -> bool:
        """Whether PostgreSQL is a cluster (`--citus`)."""
        return len(self.sql.gates) > 1

    def tenant(self) -> Tenant:
        """Return a tenant with a new workspace, in which no blob is stored."""
        directory = Path(tempfile.mkdtemp(prefix="tenant-", dir=self.directory))
        return Tenant(self, new_owner(self.database_url), directory)

    def disarm(self) -> None:
        """Let every call pass, once the calls in progress have ended."""
        for proxy in (self.http, self.sql, self.objects):
            proxy.disarm()
        self.http.wait_idle()
        self.objects.wait_idle()


@dataclass(frozen=True)
class Tenant:
    """Uploads through the proxies into a workspace, and reads it directly from the service."""

    world: FaultEnv
    token: str
    directory: Path

    @property
    def uploader(self) -> Uploader:
        """`tbupload` as a process."""
        return Uploader(self.world.http.url, self.token, self.directory)

    def upload(self, logdir: Path, *arguments: object) -> Ended:
        """Run `tbupload --one-shot --json` within this process, which is faster than starting
        another one.
        """
        options = ("--one-shot", "--json", "--retry-timeout", 30)
        return self.uploader.run("--logdir", logdir, *options, *arguments)

    def stored(self, experiment_id: str) -> dict:
        """Disarm all faults, and return everything that the read API returns of the experiment."""
        self.world.disarm()
        return stored_state(self._reader(), experiment_id)

    def experiments(self) -> list[str]:
        """Disarm all faults, and return the ids of all experiments."""
        self.world.disarm()
        listed = self._reader().experiments()
        return [item["experiment_id"] for item in listed]

    def runs_with_duplicates(self, experiment_id: str) -> set[str]:
        """Return the runs in which the server stores points twice or out of order."""
        name = database_name(self.world.database_url)
        with self.world.servers.instance.postgres.connect_as_superuser(name) as superuser:
            return runs_with_duplicates(superuser, experiment_id)

    def _reader(self) -> Reader:
        reader = self.world.reader  # one for all, because it takes longer to make than to use
        reader.http.headers["Authorization"] = f"Bearer {self.token}"
        return reader


@dataclass(frozen=True)
class CleanUpload:
    """The result of an upload without faults, and what it stored."""

    world: FaultEnv
    logdir: Path
    done: dict
    stored: dict

    def upload_with(
        self, proxy: HttpFaults | PostgresFaults, faults: object, *, says_all: bool = True
    ) -> int:
        """Upload the same with these faults at one of the proxies, and check the result.

        Returns how many were met.
        """
        self.world.disarm()
        tenant = self.world.tenant()
        proxy.arm(faults)
        ended = tenant.upload(self.logdir)
        hits = proxy.hits
        self.check(tenant, ended, says_all=says_all)
        return hits

    def check(self, tenant: Tenant, ended: Ended, *, says_all: bool = True) -> None:
        """Check that an upload with exit code 0 stored what the clean one stored, once, in one
        experiment.
        """
        assert ended.code == 0, ended.err
        assert tenant.experiments() == [ended.experiment_id], "another experiment was made as well"
        self.check_stored(tenant, ended.experiment_id)
        if says_all:
            assert counts(ended.done) == counts(self.done), f"{ended.done} instead of {self.done}"

    def check_stored(
        self, tenant: Tenant, experiment_id: str, *, in_order: bool = True, same_files: bool = True
    ) -> None:
        """Check that the experiment equals the clean one, and, if one host sent all in order, holds
        nothing twice.

        Without `same_files` the streams may differ: another host's files are other streams.
        """
        stored = tenant.stored(experiment_id)
        for kind, content in self.stored.items():
            assert stored[kind] == content or (kind == "streams" and not same_files), kind
        duplicated = tenant.runs_with_duplicates(experiment_id) - {RESTARTED}
        assert not in_order or not duplicated, f"points kept twice in the runs {duplicated}"


def counts(done: dict) -> dict:
    """Return the figures of a `done` line that do not depend on retries."""
    return {
        name: done[name]
        for name in ("scalars", "tensors", "blobs", "bytes", "runs", "series", "skipped")
    }


def clean_upload(world: FaultEnv, logdir: Path) -> CleanUpload:
    """Upload the log directory without faults."""
    tenant = world.tenant()
    world.disarm()
    ended = tenant.upload(logdir)
    return CleanUpload(world, logdir, ended.done, tenant.stored(ended.experiment_id))


@contextmanager
def fault_env(servers: Servers, directory: Path, **environment: str):
    """Run a FaultEnv on a database and a bucket of its own; `environment` is the service's."""
    log = directory / "service.log"
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        servers.postgres_faults(url) as sql,
        http_faults(settings.s3_endpoint) as objects,
        live_service(
            _behind(settings, sql, objects), log, forked="small_service", **environment
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
