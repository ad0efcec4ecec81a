"""Translation of PostgreSQL driver errors into the service's errors (`tbservice.errors`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy import exc

from tbservice.errors import Invalid, NotFound, Unavailable

READ_ONLY: Final = (
    "the database accepts no writes: it is a standby, or read-only; nothing was lost, try again"
)

_UNAVAILABLE: Final = (
    "the database cannot be reached or is out of capacity; nothing was lost, try again"
)
_NODE_LOST: Final = "failure on connection marked as essential"
"""Messages of Citus, without a SQLSTATE of its own, when another node closes a connection."""

_DISK_FULL: Final = (
    "the database's disk is full: the operator of the server has to make room; nothing was lost, "
    "try again"
)


@contextmanager
def translate_driver_errors() -> Iterator[None]:
    """Raise the service's error instead of the driver's.

    SQLAlchemy wraps psycopg's errors in its own, except those of statements that bypass it
    (`pipeline.execute_binary`). So both families are caught.

    Raises:
        Unavailable: PostgreSQL is unreachable, stopping, read-only, full, or chose this transaction
            as the victim of a deadlock. The client may repeat the request.
        NotFound: A foreign key violation shows that the experiment has been deleted.
        Invalid: A text contains a NUL character.
    """
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise _make_unavailable(error.orig) from error
    # The pool's own: all connections were in use for too long.
    except exc.TimeoutError as error:
        raise Unavailable(_UNAVAILABLE) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise _make_unavailable(error) from error
    except psycopg.Error as error:
        raise _translate_error(error) or error from error
    except exc.DBAPIError as error:
        # SQLAlchemy saw the connection break, whatever the statement's error was.
        if error.connection_invalidated:
            raise Unavailable(_UNAVAILABLE) from error
        raise _translate_error(error.orig) or error from error


def is_read_only(error: BaseException) -> bool:
    """Return whether a write failed because the server is read-only, as after a failover."""
    return isinstance(getattr(error, "orig", error), psycopg.errors.ReadOnlySqlTransaction)


def is_node_lost(error: BaseException) -> bool:
    """Return whether a node of a cluster had lost its connection to another one."""
    original = getattr(error, "orig", error)
    return isinstance(original, psycopg.errors.InternalError_) and _NODE_LOST in str(original)


def _make_unavailable(error: BaseException | None) -> Unavailable:
    return Unavailable(_DISK_FULL if isinstance(error, psycopg.errors.DiskFull) else _UNAVAILABLE)


def _translate_error(error: BaseException | None) -> Exception | None:
    """Return the service's error; None for an error that is a bug of the service."""
    if error is not None and is_read_only(error):
        return Unavailable(READ_ONLY)
    if error is not None and is_node_lost(error):
        return Unavailable(_UNAVAILABLE)
    if isinstance(error, psycopg.errors.ForeignKeyViolation) and _violates_experiment_key(error):
        return NotFound("the experiment has been deleted")
    return _translate_data_error(error) if isinstance(error, psycopg.DataError) else None


def _translate_data_error(error: psycopg.DataError) -> Invalid | None:
    """Translate the driver's own error for a NUL; PostgreSQL's have a SQLSTATE and are our faults.

    The type `text` cannot contain a NUL (PostgreSQL manual, 8.3 "Character Types").
    """
    if error.sqlstate is None:
        return Invalid("a text contains a NUL character, which PostgreSQL cannot store")
    return None


def _violates_experiment_key(violation: psycopg.Error) -> bool:
    # PostgreSQL names the constraint TABLE_COLUMN_fkey by itself.
    return (violation.diag.constraint_name or "").endswith("_experiment_id_fkey")
