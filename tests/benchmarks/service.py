"""A real service to measure: PostgreSQL and SeaweedFS in a directory of their own, and `tbservice
serve` over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from machine import cpu_seconds

from support.batches import ApiClient
from support.servers import LiveService, Servers, live_service
from support.uploading import Reader


@dataclass(frozen=True)
class Service:
    """One worker over an empty database, and a workspace in it."""

    live: LiveService
    servers: Servers
    token: str
    directory: Path

    @property
    def reader(self) -> Reader:
        """The read API with the workspace's token."""
        return Reader(self.live.url, self.token)

    @property
    def api(self) -> ApiClient:
        """The whole API with the workspace's token."""
        return ApiClient(self.reader.http, self.token)

    @property
    def database_name(self) -> str:
        """The service's database."""
        return urlsplit(self.live.database_url).path.strip("/")

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds of the server's processes until now, by group; the other servers may serve
        others besides.
        """
        groups = {child.name: child._process.pid for child in self.servers.instance.children}
        return {"server": cpu_seconds(self.live.process.pid)} | {
            name: cpu_seconds(process_id) for name, process_id in groups.items()
        }

    def memory(self) -> int:
        """Memory that the server's processes have for themselves, in bytes."""
        parent = psutil.Process(self.live.process.pid)
        processes = [parent, *parent.children(recursive=True)]
        return sum(process.memory_full_info().uss for process in processes)

    def query(self, statement: str) -> list[tuple]:
        """Rows of a statement on the service's database, outside any transaction.

        As superuser: row-level security would hide every row from the service's own role, and show
        it empty tables.
        """
        with self.servers.instance.postgres.connect_as_superuser(self.database_name) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def new_service(servers: Servers, directory: Path, **more: str) -> Iterator[Service]:
    """A service on a new database of the servers; `directory` is for its log and for what a
    benchmark writes, `more` goes to its environment.
    """
    directory.mkdir()
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        live_service(settings, directory / "service.log", **more) as live,
    ):
        yield Service(live, servers, live.new_owner(), directory)
