"""Queries on `sample_slots`: the rank of each slot, drawn once by a migration and data from then on."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from sqlalchemy import Connection, Engine, text

from tbservice.types import Ranks

_read: WeakKeyDictionary[Engine, Ranks] = WeakKeyDictionary()


def get_ranks(db: Connection) -> Ranks:
    """The rank of each of the 65,536 slots; read once for an engine, as they never change."""
    ranks = _read.get(db.engine)
    if ranks is None:
        rows = db.execute(text("SELECT rank FROM sample_slots ORDER BY slot")).scalars().all()
        ranks = _read[db.engine] = np.array(rows, np.uint8)
    return ranks
