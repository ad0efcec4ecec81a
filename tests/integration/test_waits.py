"""Which threads of a request count as waiting: those that hold no processor."""

from __future__ import annotations

import contextvars
import threading

from sqlalchemy import text

from support.waiting import wait_until
from tbservice.waits import Waits, count_in

_LOCK = text("SELECT pg_advisory_xact_lock(12018)")


def test_thread_counts_as_waiting_while_postgresql_works(database):
    waits = Waits()

    def lock():
        with database.transaction() as db:
            db.execute(_LOCK)

    context = contextvars.copy_context()
    context.run(count_in, waits)
    with database.transaction() as db:
        db.execute(_LOCK)
        thread = threading.Thread(target=context.run, args=(lock,))
        thread.start()
        wait_until(lambda: waits.count == 1)
    thread.join()
    assert waits.count == 0
