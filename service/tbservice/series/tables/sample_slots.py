"""Queries on `sample_slots`: the rank of each slot, drawn once by the first migration."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from sqlalchemy import Connection, Engine, text

from tbservice.db.cluster.citus import Forms
from tbservice.types.identifiers import Booleans, Ranks

SLOT_COUNT: Final = 1 << 16

_DRAW: Final = Forms(
    plain="SELECT slot FROM sample_slots TABLESAMPLE BERNOULLI (:percent) REPEATABLE (:seed)",
    cluster="""
        SELECT slot FROM sample_slots
        WHERE hashint8extended(slot, CAST(:seed AS bigint)) & ((1::bigint << 32) - 1)
            < CAST(:percent AS float8) / 100 * (1::bigint << 32)
    """,
)

_ranks_by_engine: WeakKeyDictionary[Engine, Ranks] = WeakKeyDictionary()


def get_ranks(db: Connection) -> Ranks:
    """Return the rank of each of the 65,536 slots.

    Read once per engine: ranks never change, not even by a failover or a restore.
    """
    ranks = _ranks_by_engine.get(db.engine)
    if ranks is None:
        rows = db.execute(text("SELECT rank FROM sample_slots ORDER BY slot")).scalars().all()
        ranks = _ranks_by_engine[db.engine] = np.array(rows, np.uint8)
    return ranks


def draw_slots(db: Connection, percent: float, seed: int) -> Booleans:
    """Draw slots with TABLESAMPLE; return for each of the 65,536 whether it was drawn.

    The same `percent` and `seed` draw the same slots. In a cluster, a hash of slot and seed draws
    them, instead of one of the row's place in the table: each node has its own copy of that.
    """
    slots = db.execute(text(_DRAW.of(db)), {"percent": percent, "seed": seed}).scalars().all()
    is_drawn = np.zeros(SLOT_COUNT, np.bool_)
    is_drawn[np.array(slots, np.int64)] = True
    return is_drawn
