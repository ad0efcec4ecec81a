"""Write scalars to one series, record what arrived in which order, and compact on request."""

from __future__ import annotations

import numpy as np
from sqlalchemy import text

from support.batches import scalars, segment, stream
from tbservice.series import compaction
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant
from tbwire.digests import deduplicate_steps, scalar_records


class SeriesWriter:
    """The series "loss" of the run "train"."""

    def __init__(self, api, experiment, database, workspace_id):
        self._api = api
        self._experiment = experiment
        self._database = database
        self._workspace_id = workspace_id
        self._arrived = []

    def write(self, steps, values=None, wall_times=None):
        """Write one batch; its wall times are later than those of the one before by default."""
        count = len(self._arrived)
        steps = np.asarray(steps, np.int64)
        values = (
            np.random.default_rng(count).normal(size=len(steps))
            if values is None
            else np.array(values)
        )
        wall_times = (
            np.full(len(steps), 1.7e9 + count) if wall_times is None else np.array(wall_times)
        )
        series = scalars("loss", steps, values, wall_times)
        self._api.write(self._experiment, segment(stream("train"), count, count + 1, series))
        self._arrived.append(scalar_records(steps, wall_times, values))

    def merge(self):
        """Compact until nothing is left to compact."""
        grant = AppendGrant(self._workspace_id, self._experiment)
        with self._database.transaction(self._workspace_id) as db:
            run_id = runs_tags.resolve_runs(db, grant, ["train"])["train"]
            while compaction.compact_run(db, grant, run_id, compact_idle=True).series:
                pass

    def levels(self):
        """Return the number of blocks by level, of write buffer rows ("tail"), and of inline
        buffers in use ("end").
        """
        with self._database.snapshot(self._workspace_id) as db:
            rows = db.execute(text("SELECT level, count(*) FROM scalar_blocks GROUP BY 1")).all()
            counts = {level: count for level, count in rows}  # noqa: C416 - rows are no pairs to a type checker
            ends = db.execute(
                text("SELECT count(*) FROM time_series WHERE tail_end <> ''")
            ).scalar()
            return counts | {
                "tail": db.execute(text("SELECT count(*) FROM scalar_tail")).scalar(),
                "end": ends,
            }

    def expected(self):
        """Return the records of a full read."""
        return deduplicate_steps(np.concatenate(self._arrived))
