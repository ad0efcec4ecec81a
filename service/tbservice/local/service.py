"""The service of `tbservice up`, over an embedded instance: first use, serving, and watching the two servers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from tbservice.auth.tokens import create_owner_token
from tbservice.auth.workspaces import create_workspace, list_workspaces
from tbservice.errors import StartupError
from tbservice.local.client_config import client_config_file, write_client_config
from tbservice.local.embedded.connection import make_settings
from tbservice.local.embedded.instance import Instance
from tbservice.server import bind, workers
from tbservice.server.app import create_app
from tbservice.store.pg import migrate
from tbservice.store.pg.database import Database

MONITOR_SECONDS = 0.5
"""Seconds between two looks at the servers; also what a stop is given to reach us when it reaches them first."""

Report = Callable[[str], None]


def prepare(instance: Instance, url: str, report: Report) -> str:
    """Migrates the database, sees to it that there is an owner, and that the uploader on this machine speaks for it.

    Returns the owner's token. `url` is the server's, as programs on this machine reach it; `say` is told each step.
    """
    for name in migrate.upgrade(instance.postgres.url()):
        report(f"migrated the database: {name}")
    token_file = instance.directory.path / "owner-token"
    if not token_file.exists():
        instance.directory.write(token_file, _create_owner_token(instance.postgres.url()) + "\n")
    token = token_file.read_text().strip()
    warning = write_client_config(client_config_file(), url, token)
    if warning is not None:
        report(f"{warning} This server is {url}, and its owner's token is in {token_file}")
    return token


def serve(
    instance: Instance, bound: socket.socket, host: str, when_ready: Callable[[str], None]
) -> None:
    """Serves until a signal; `when_ready` is told the public URL. Raises StartupError when a server stops by itself.

    `when_ready` is called in the event loop: it must not block.
    """
    port = bound.getsockname()[1]
    url = os.environ.get("TBHUB_PUBLIC_URL") or bind.public_url(host, port)
    settings = make_settings(instance, host=host, port=port, public_url=url)
    app = create_app(settings)
    app.state.forced_exit.before = instance.stop
    server = workers.Server(workers.configure(app, settings), lambda: when_ready(url))
    monitor = _ServerMonitor(instance, server)
    monitor.start()
    workers.run(server, bound)
    app.state.forced_exit.cancel()  # the two servers stop in their own time
    if monitor.error is not None:
        raise monitor.error


class _ServerMonitor(threading.Thread):
    """Looks after the two servers while the service runs, and ends the service when one of them is gone."""

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
                # A Ctrl-C goes to the whole process group: they may have it before we do.
                self._pause.wait(MONITOR_SECONDS)
                if not self._server.should_exit:
                    self.error = error
                    self._server.should_exit = True
            self._pause.wait(MONITOR_SECONDS)


def _create_owner_token(database_url: str) -> str:
    """An owner token of the first workspace, which is made if there is none yet."""
    database = Database(database_url, 1)
    try:
        with database.transaction() as db:
            found = list_workspaces(db)
            workspace_id = found[0][0] if found else create_workspace(db, "default")
        with database.transaction(workspace_id) as db:
            return create_owner_token(db, workspace_id, "tbservice up")[1]
    finally:
        database.close()
