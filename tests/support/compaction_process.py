"""A process that compacts an experiment as a worker does, one series per transaction, until it is
told to end.
"""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager

from tbservice.db.database import Database
from tbservice.series import compaction

SECONDS_MAX = 60


@contextmanager
def merging_processes(count, url, grant, run_ids):
    """Run processes that compact these runs at once; yield how many series each has compacted so
    far.
    """
    context = multiprocessing.get_context("spawn")
    barrier, is_over = context.Barrier(count), context.Event()
    merged = [context.Value("q") for _ in range(count)]
    processes = [
        context.Process(target=_merge, args=(url, grant, run_ids, barrier, is_over, number))
        for number in merged
    ]
    for process in processes:
        process.start()
    try:
        yield merged
    finally:
        is_over.set()
        for process in processes:
            process.join(SECONDS_MAX)
    assert [process.exitcode for process in processes] == [0] * count


def _merge(url, grant, run_ids, barrier, is_over, merged):
    compaction.SERIES_PER_COMPACTION = 1
    database = Database(url, 1)
    database.check()  # connected before any of them begins
    barrier.wait(SECONDS_MAX)
    is_last_look = False
    while not is_last_look:
        is_last_look = is_over.is_set()
        for run_id in run_ids:
            _merge_run(database, grant, run_id, merged)
    database.close()


def _merge_run(database, grant, run_id, merged):
    tag_id = 0
    while True:
        with database.transaction(grant.workspace_id) as db:
            work = compaction.compact_run(db, grant, run_id, tag_id, compact_idle=True)
        if not work.series:
            return
        merged.value += work.series
        tag_id = work.last_tag_id
