"""The eraser, killed at each of its steps."""

from __future__ import annotations

import contextvars
import threading
from contextlib import closing, contextmanager

from tbservice.db.database import Database
from tbservice.errors import Unavailable
from tbservice.experiments.eraser import erase_due


class BreakingDatabase(Database):
    """A database of which one of the next transactions, counted by their ends, is rolled back."""

    left = 0

    @contextmanager
    def transaction(self, visible=None):
        with super().transaction(visible) as db:
            yield db
            self.left -= 1
            if self.left == 0:
                raise Unavailable("killed")


def erase_broken_at_each_step(database_url):
    """Erase all that is due, the first time killed in the first transaction, then in the second of
    what is left, and so on; return how often.
    """
    killed = 0
    with closing(BreakingDatabase(database_url, 2)) as breaking:
        while True:
            breaking.left = killed + 1
            try:
                contextvars.Context().run(erase_due, breaking, threading.Event())
            except Unavailable:
                killed += 1
            else:
                return killed
