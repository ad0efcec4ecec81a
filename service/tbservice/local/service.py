"""The service of `tbservice up`: its first start, serving, and monitoring the two servers."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tbservice import limits
from tbservice.auth import grants, operators, people
from tbservice.auth.sign_in_links import create_link
from tbservice.auth.tokens import create_owner_token
from tbservice.auth.workspaces import create_workspace, list_workspaces
from tbservice.db import migrate
from tbservice.db.database import Database
from tbservice.errors import Forbidden, StartupError
from tbservice.local.client_config import write_client_config
from tbservice.local.embedded.instance import Instance, make_settings
from tbservice.server import bind, workers
from tbservice.server.app import create_app
from tbservice.server.grpc_port import reserve_grpc_port
from tbservice.types.people import Role
from tbwire.config_file import config_path

MONITOR_SECONDS = 0.5
"""Seconds between two checks of the servers.

Also the time within which a signal that stopped a server must reach this process too.
"""

LOCAL_EMAIL = "owner@localhost"
"""The address of the person who runs `tbservice up`. No provider can confirm it for another."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner's token, the file that has it, and whether `tbupload` finds it by itself."""

    token: str
    file: Path
    is_configured: bool


def prepare(instance: Instance, url: str, report: Report) -> Owner:
    """Migrate the database and configure the uploader of this machine; return the owner's token.

    Creates a workspace with an owner token if there is none, and another token in place of one that
    was revoked. A token that `tbupload` has for this server already is kept while it is accepted:
    that of a person whose `tbupload login` stored it, for example. Idempotent.

    Args:
        instance: The running PostgreSQL and S3 servers.
        url: The service's URL for programs on this machine.
        report: Called with a line for the migrations, and for a configuration left unchanged.
    """
    done = migrate.upgrade(instance.postgres.url())
    if done:
        report(f"migrated the database to {done[-1]}")

    token_file = instance.directory.path / "owner-token"
    with closing(Database(instance.postgres.url(), 1)) as database:
        token = token_file.read_text().strip() if token_file.exists() else ""
        if not _is_accepted(database, token):
            token = _create_owner_token(database)
            instance.directory.write(token_file, token + "\n")
        warning = write_client_config(
            config_path(os.environ), url, token, lambda other: _is_accepted(database, other)
        )
    if warning is not None:
        report(f"{warning} This server's URL is {url}; its owner token is in {token_file}")
    return Owner(token, token_file, is_configured=warning is None)


def create_sign_in_link(instance: Instance) -> str | None:
    """Return the secret of a new link that signs in the person who owns the first workspace, once.

    The person is created if there is none, and is an operator unless that was revoked. None if the
    person is disabled.
    """
    try:
        with (
            closing(Database(instance.postgres.url(), 1)) as database,
            database.transaction() as db,
        ):
            person = people.find_or_create_by_email(db, LOCAL_EMAIL, _account_name())
            operators.make_first_operator(db, person.user_id)
            people.add_member(db, list_workspaces(db)[0][0], person.user_id, Role.OWNER)
            return create_link(db, person.user_id, limits.SIGN_IN_LINK_LOCAL_SECONDS)
    except Forbidden:
        return None


def serve(
    instance: Instance,
    bound: socket.socket,
    host: str,
    grpc_port: int | None,
    when_ready: Callable[[str, int | None], None],
) -> None:
    """Serve until a signal. Raises StartupError if a server stops by itself.

    Args:
        instance: The running PostgreSQL and S3 servers.
        bound: The socket for HTTP.
        host: The address of that socket, and of the gRPC port.
        grpc_port: Replaces the setting of this name, if it is not None.
        when_ready: Called with the public URL and the gRPC port in the event loop: it must not
            block.
    """
    port = bound.getsockname()[1]
    url = os.environ.get("TBHUB_PUBLIC_URL") or bind.public_url(host, port)
    instance.directory.record_service(url)
    named = make_settings(instance, host=host, port=port, public_url=url)
    if grpc_port is not None:
        named = named.model_copy(update={"grpc_port": grpc_port})

    with reserve_grpc_port(named) as settings:
        app = create_app(settings)
        app.state.forced_exit.before = instance.stop
        server = workers.Server(
            workers.configure(app, settings), lambda: when_ready(url, settings.grpc_port)
        )
        monitor = _ServerMonitor(instance, server)
        monitor.start()
        workers.run(server, bound)

    app.state.forced_exit.cancel()  # PostgreSQL and SeaweedFS have timeouts of their own
    if monitor.error is not None:
        raise monitor.error


class _ServerMonitor(threading.Thread):
    """A thread that stops the service if PostgreSQL or SeaweedFS stops by itself."""

    def __init__(self, instance: Instance, server: workers.Server) -> None:
        super().__init__(daemon=True)
        self.error: StartupError | None = None
        self._instance = instance
        self._server = server
        self._pause = threading.Event()

    def run(self) -> None:
        while not self._server.should_exit:
            try:
                self._instance.check()
            except StartupError as error:
                # Ctrl-C goes to the whole process group: the servers may get it first.
                self._pause.wait(MONITOR_SECONDS)
                if not self._server.should_exit:
                    self.error = error
                    self._server.should_exit = True
            self._pause.wait(MONITOR_SECONDS)


def _account_name() -> str:
    """Return the name of the operating system's account, or "" for one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _create_owner_token(database: Database) -> str:
    """Return a new owner token of the first workspace, which is created if there is none."""
    with database.transaction() as db:
        workspaces = list_workspaces(db)
        workspace_id = workspaces[0][0] if workspaces else create_workspace(db, "default")
    with database.transaction(workspace_id) as db:
        return create_owner_token(db, workspace_id, "tbservice up")[1]


def _is_accepted(database: Database, secret: str) -> bool:
    """Return whether this server knows a token, and it has not ended."""
    digest = grants.parse_token_digest(secret)
    if digest is None:
        return False
    with database.transaction() as db:
        return grants.find_caller(db, digest) is not None
