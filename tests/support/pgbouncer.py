"""PgBouncer in transaction mode before a database, as Debian packages it (1.18 in bookworm)."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from support.programs import find_program
from support.waiting import wait_until
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

USER = "nobody"  # it refuses to run as root
CONNECTIONS = 3

_CONFIGURATION = """\
[databases]
* = host={url.hostname} port={url.port}
[pgbouncer]
listen_addr = {address}
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {directory}/users.txt
pool_mode = transaction
default_pool_size = {connections}
"""


@contextmanager
def pgbouncer(database_url: str, **options: object):
    """Run PgBouncer with these options besides; yield a URL of the database through it.

    It shares CONNECTIONS connections among all clients, so that each gets them in turn.
    """
    program = os.environ.get("PGBOUNCER") or find_program("pgbouncer")
    url = urlsplit(database_url)
    port = choose_ports(["pgbouncer"], {})["pgbouncer"]
    with tempfile.TemporaryDirectory(prefix="tbhub-pgbouncer-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        text = _CONFIGURATION.format(
            url=url, address=LOOPBACK, port=port, directory=directory, connections=CONNECTIONS
        )
        text += "".join(f"{option} = {value}\n" for option, value in options.items())
        (directory / "pgbouncer.ini").write_text(text)
        (directory / "users.txt").write_text(f'"{url.username}" "{url.password}"\n')
        account = ["-u", USER] if os.geteuid() == 0 else []
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, *account, directory / "pgbouncer.ini"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: _answers(process, port, directory / "log"))
            yield f"postgresql://{url.username}:{url.password}@{LOOPBACK}:{port}{url.path}"
        finally:
            process.terminate()
            process.wait()


def _answers(process, port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        socket.create_connection((LOOPBACK, port), 1).close()
    except OSError:
        return False
    return True
