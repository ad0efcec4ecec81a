"""Deletions during an upload: what was deleted can be uploaded again, and nothing hangs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from support.batches import scalars, segment, stream
from support.waiting import wait_until


@pytest.fixture
def held_series(database, workspace_id, count_waiting):
    """Locks the rows of an experiment's series in a block; yields a function that waits until
    `count` statements wait for a lock.
    """

    @contextmanager
    def held_series(experiment_id):
        lock = text("SELECT FROM time_series WHERE experiment_id = :id FOR UPDATE")
        with database.transaction(workspace_id) as db:
            assert db.execute(lock, {"id": experiment_id}).rowcount
            yield lambda count: wait_until(lambda: count_waiting() >= count)

    return held_series


def delete_under_upload(api, held_series, experiment_id, path, segments):
    """Let a deletion and then a batch wait for the same locked series; return the batch's response."""
    with ThreadPoolExecutor(2) as threads, held_series(experiment_id) as wait_for:
        deletion = threads.submit(api.request, "DELETE", f"/experiments/{experiment_id}/{path}")
        wait_for(1)
        upload = threads.submit(api.send, experiment_id, *segments)
        wait_for(2)
    assert deletion.result().status_code == 204
    return upload.result()


def test_deletion_before_batch_restarts_uploader(api, held_series):
    path = "series?run=train&tag=loss"
    experiment_id = api.new_experiment()
    first = segment(stream(), 0, 100, scalars("loss", range(10)))
    second = segment(stream(), 100, 200, scalars("loss", range(10, 20)))
    api.write(experiment_id, first)
    answer = delete_under_upload(api, held_series, experiment_id, path, [second])
    assert answer.status_code == 409
    assert (answer.json()["code"], answer.json()["offset"]) == ("cursor_conflict", 0)
    api.write(experiment_id, first)
    api.write(experiment_id, second)
    assert api.get(experiment_id, "scalars/data")["train"]["loss"]["steps"] == list(range(20))


@pytest.mark.parametrize("runs", [["train"], ["train", "test"]])
def test_uploaders_at_one_cursor_get_each_others_place(api, held_series, runs):
    experiment_id = api.new_experiment()

    def send(start):
        parts = [
            segment(stream(run), start, start + 100, scalars("loss", range(start, start + 10)))
            for run in runs
        ]
        return api.send(experiment_id, *parts)

    assert send(0).status_code == 200
    with ThreadPoolExecutor(2) as threads, held_series(experiment_id) as wait_for:
        answers = threads.map(send, [100, 100])
        wait_for(2)
    accepted, refused = sorted(answers, key=lambda answer: answer.status_code)
    assert accepted.status_code == 200
    assert (refused.json()["code"], refused.json()["offset"]) == ("cursor_conflict", 200)
    assert {
        run: tags["loss"]["count"] for run, tags in api.get(experiment_id, "scalars").items()
    } == dict.fromkeys(runs, 20)


def test_writers_of_names_in_opposite_order_never_deadlock(api):
    experiment_id, together = api.new_experiment(), threading.Barrier(2)

    def send_all(name, order):
        for number in range(5):
            # New and known in turns.
            names = [f"tag {number // 2} {index}" for index in range(300)]
            series = [scalars(name, [number]) for name in names[::order]]
            batch = segment(stream(file_name=name), number, number + 1, *series)
            together.wait(60)
            api.write(experiment_id, batch)

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(send_all, "ab", (1, -1))] == [None, None]
    assert len(api.get(experiment_id, "scalars")["train"]) == 3 * 300
