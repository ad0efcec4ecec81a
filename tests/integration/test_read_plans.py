"""Reads of one run of a large experiment that PostgreSQL has no statistics of: it has just come."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from sqlalchemy import text

from support.batches import images, scalars, segment, stream, texts
from tbservice.reading import catalog
from tbservice.series.tables import scalar_blocks
from tbservice.series.tables.scalar_blocks import NewBlock
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Sampling, SamplingRule, Selection, StepRange
from tbwire.points import ScalarPoints

RUNS, TAGS = 100, 4
SAMPLINGS = {
    "sample": Sampling(k=3),
    "ends": Sampling(SamplingRule.LINEAR, k=3),
    "range": Sampling(k=3, steps=StepRange(1, 3)),
    "last": Sampling(SamplingRule.ALL, last=2),
    "all": Sampling(SamplingRule.ALL),
}
READS = {
    "scalars": catalog.read_scalars,
    "tensors": catalog.read_tensors,
    "blobs": catalog.read_blob_sequences,
}
ROWS_READ = text("""
    SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables
    WHERE relname IN ('time_series', 'scalar_blocks', 'scalar_tail', 'tensor_points', 'blob_points')
""")
EXECUTIONS = 12
"""A statement is prepared when it is executed for the sixth time, and planned five times more."""


def write_runs(api):
    experiment = api.new_experiment()
    for name in ("first", "second"):  # twice: inline buffers have the points of one batch alone
        segments = [
            segment(
                stream(f"run{run}", name),
                0,
                9,
                *(scalars(f"loss {tag}", range(5)) for tag in range(TAGS)),
                *(texts(f"words {tag}", range(5), [b"a"] * 5) for tag in range(TAGS)),
                *(images(f"pictures {tag}", range(5), [[b"x"]] * 5) for tag in range(TAGS)),
            )
            for run in range(RUNS)
        ]
        api.write(experiment, *segments)
    return experiment


@pytest.mark.plain("counts the rows that one server reads")
@pytest.mark.own_database
@pytest.mark.parametrize("known", [0, 2])
def test_reads_of_a_run_do_not_look_through_its_experiment(
    api, database, owner_url, workspace_id, known
):
    """Without any statistics, and with those of some other experiments."""
    for _ in range(known):
        write_runs(api)
    if known:
        with psycopg.connect(owner_url, autocommit=True) as db:
            db.execute("ANALYZE")
    grant = ReadGrant(workspace_id, write_runs(api))
    selection = Selection(runs=frozenset({"run7"}))
    rows_read = {}
    for (kind, read), (name, sampling) in (
        (of_kind, each) for of_kind in READS.items() for each in SAMPLINGS.items()
    ):
        with database.snapshot(grant) as db:
            for _ in range(EXECUTIONS):
                read(db, grant, selection, sampling)
            before = db.execute(ROWS_READ).scalar_one()
            assert len(read(db, grant, selection, sampling)) == TAGS
            rows_read[kind, name] = db.execute(ROWS_READ).scalar_one() - before
    # A series has its row, and at most ten points, and each is read up to twice.
    assert max(rows_read.values()) < 30 * TAGS < RUNS * TAGS, rows_read


@pytest.mark.plain("counts the rows that one server reads")
@pytest.mark.own_database
def test_blocks_of_a_level_are_found_by_their_keys(api, database, owner_url, workspace_id):
    """Also when PostgreSQL has statistics of them: each series has a thousand of another level."""
    experiment = api.new_experiment()
    names = [f"loss {tag}" for tag in range(TAGS)]
    api.write(experiment, segment(stream(), 0, 9, *(scalars(name, range(5)) for name in names)))
    grant = ReadGrant(workspace_id, experiment)
    steps = np.arange(1_000)
    with database.transaction(workspace_id) as db:
        series_ids = [series.series_id for series in catalog.list_series(db, grant, Selection())]
        blocks = [
            NewBlock(
                series_id, 0, ScalarPoints(steps[at : at + 1], *[steps[at : at + 1] * 1.0] * 2)
            )
            for series_id in series_ids
            for at in steps
        ]
        scalar_blocks.insert(db, grant, blocks)
    with psycopg.connect(owner_url, autocommit=True) as db:
        db.execute("ANALYZE")
    with database.snapshot(grant) as db:
        for _ in range(EXECUTIONS):
            scalar_blocks.query(db, experiment, dict.fromkeys(series_ids, 3), {})
        before = db.execute(ROWS_READ).scalar_one()
        scalar_blocks.query(db, experiment, dict.fromkeys(series_ids, 3), {})
        assert db.execute(ROWS_READ).scalar_one() - before < len(steps)
