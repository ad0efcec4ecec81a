"""Which threads of a request count as waiting: those that hold no processor."""

from __future__ import annotations

import contextvars
import threading

from sqlalchemy import text

from support.waiting import wait_until
from tbservice.waits import Waits, count_in, take_seconds

_LOCK = text("SELECT pg_advisory_xact_lock(12018)")


def test_thread_counts_as_waiting_while_postgresql_works(database):
    waits = Waits()

    def lock():
        with database.transaction() as db:
            db.execute(_LOCK)

    context = contextvars.copy_context()
    context.run(count_in, waits, "a caller", lambda: None, lambda: None)
    with database.transaction() as db:
        db.execute(_LOCK)
        thread = threading.Thread(target=context.run, args=(lock,))
        thread.start()
        wait_until(lambda: waits.count == 1)
        assert waits.by_caller == {"a caller": 1}
    thread.join()
    assert not waits.count
    assert not waits.by_caller
    assert context.run(take_seconds) > 0
    assert not context.run(take_seconds)
