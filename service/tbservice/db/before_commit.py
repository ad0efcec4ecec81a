"""Have a function called at the end of a transaction, before its COMMIT.

For what locks rows that other transactions want too: whenever it is asked for, its locks are the
last ones, held for the COMMIT alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from sqlalchemy import Connection

_Function = TypeVar("_Function", bound=Callable[[Connection], None])

_KEY: Final = "tbhub_before_commit"
"""Key of `Connection.info`: of the driver's connection, which has one transaction at a time."""


@contextmanager
def calling(db: Connection) -> Iterator[None]:
    """Call at the end of the block, unless it raises, what `get_or_add` was given in it."""
    functions: dict[object, Callable[[Connection], None]] = {}
    # Kept, since SQLAlchemy refuses access to `info` after the connection has broken.
    info = db.info
    info[_KEY] = functions
    try:
        yield
        for function in functions.values():
            function(db)
    finally:
        info.pop(_KEY, None)


def get_or_add(db: Connection, make: Callable[[], _Function]) -> _Function:
    """Return what `make` returned first in this transaction: it is called before the COMMIT.

    Raises LookupError outside of the transactions of `Database`: nothing would call it.
    """
    functions = db.info.get(_KEY)
    if functions is None:
        raise LookupError("no transaction of Database is open on this connection")
    if make not in functions:
        functions[make] = make()
    function: _Function = functions[make]
    return function
