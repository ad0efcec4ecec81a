"""SQLAlchemy engines for libpq URLs with any of libpq's parameters, several hosts included."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, create_engine, event

from tbservice.errors import StartupError
from tbservice.waits import begin_wait, end_wait

_CONNECT_SECONDS_MAX: Final = 10
"""Seconds to connect to one host."""

_URL_ERROR: Final = (
    "TBHUB_DATABASE_URL is not a PostgreSQL URL: write "
    "postgresql://user:password@host:port/database, or for a server with a standby "
    "postgresql://user:password@host1:5432,host2:5432/database?target_session_attrs=read-write; "
    "write special characters of the password as %XX"
)


class _Connection(psycopg.Connection[Any]):
    """A connection of psycopg that counts the threads that wait for PostgreSQL."""

    def wait(self, *args: Any, **options: Any) -> Any:
        """Wait as psycopg does: each statement passes here."""
        begun = begin_wait()
        try:
            return super().wait(*args, **options)
        finally:
            end_wait(begun)


def make_engine(url: str, *, connect_seconds_max: int | None = None, **options: Any) -> Engine:
    """Return an engine that connects by a libpq URL (postgresql://…) when it is first used.

    Its connections prepare no statements, and send no settings when they are opened, which poolers
    (PgBouncer) refuse: see `connection.configure`.

    The URL is passed to libpq unchanged, because SQLAlchemy's parser does not support all of its
    syntax (PostgreSQL manual, 32.1.1.2 "Connection URIs").

    Args:
        url: Host, port, user, password, database and any other of libpq's parameters.
        connect_seconds_max: Seconds to connect to one host, and without an acknowledgement of what
            was sent to it, unless the URL has others; None for 10 s, and for what the system has.
        **options: Options of SQLAlchemy's `create_engine`.

    Raises:
        StartupError: libpq cannot parse the URL. The message quotes no part of it, since the
            password may be anywhere in a malformed URL.
    """
    fields = _parse_url(url)
    timeouts = {"connect_timeout": connect_seconds_max or _CONNECT_SECONDS_MAX}
    if connect_seconds_max is not None:
        timeouts["tcp_user_timeout"] = connect_seconds_max * 1000
    parameters: dict[str, Any] = {
        # Shown in pg_stat_activity: which release still runs, and who holds a lock.
        "fallback_application_name": f"tbservice {version('tbhub')}",
        "prepare_threshold": None,
        **timeouts,
    }
    parameters |= {name: fields[name] for name in timeouts if name in fields}
    engine = create_engine("postgresql+psycopg://", **options)

    @event.listens_for(engine, "do_connect")
    def use_url(
        _dialect: object, _record: object, _arguments: list[Any], keywords: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        return _Connection.connect(url, **keywords | parameters)

    return engine


def _parse_url(url: str) -> dict[str, Any]:
    """Parse a URL as libpq does, and check the ports, which libpq checks only when it connects."""
    try:
        fields = conninfo_to_dict(url)
    except psycopg.Error:
        raise StartupError(_URL_ERROR) from None  # libpq's message quotes the URL
    ports = str(fields.get("port") or "").split(",")
    if not all(port == "" or port.isdecimal() for port in ports):
        raise StartupError(_URL_ERROR)
    return fields
