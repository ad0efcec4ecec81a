"""A real service to measure: PostgreSQL and SeaweedFS in a directory of their own, and `tbservice serve` over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from support.servers import LiveService, Servers, live_service
from support.uploading import Reader
from tbservice.embedded.ports import choose_ports
from tbservice.embedded.postgres import Postgres


@dataclass(frozen=True)
class Service:
    """One worker over an empty database, and a workspace in it."""

    live: LiveService
    postgres: Postgres
    token: str
    directory: Path

    @property
    def reader(self) -> Reader:
        """The read API with the workspace's token."""
        return Reader(self.live.url, self.token)

    def query(self, statement: str) -> list[tuple]:
        """Rows of a statement on the service's database, outside any transaction.

        As superuser: row-level security would hide every row from the service's own role, and show it empty tables.
        """
        name = urlsplit(self.live.database_url).path.strip("/")
        with self.postgres.connect_as_superuser(name) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def new_service(servers: Servers, directory: Path) -> Iterator[Service]:
    """A service on a new database of the servers; `directory` is for its log and for what a benchmark writes."""
    directory.mkdir()
    port = choose_ports(["service"], {})["service"]
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        live_service(settings, port, directory / "service.log") as live,
    ):
        yield Service(live, servers.instance.postgres, live.new_owner(), directory)
