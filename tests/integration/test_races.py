"""Deletions during an upload: what was deleted can be uploaded again, and nothing hangs."""

from __future__ import annotations

import threading
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
    answers = {}

    def run(name, work):
        answers[name] = work()

    with held_series(experiment_id) as wait_for:
        deletion = threading.Thread(
            target=run,
            args=("deleted", lambda: api.request("DELETE", f"/experiments/{experiment_id}/{path}")),
        )
        deletion.start()
        wait_for(1)
        upload = threading.Thread(
            target=run, args=("sent", lambda: api.send(experiment_id, *segments))
        )
        upload.start()
        wait_for(2)
    deletion.join(60)
    upload.join(60)
    assert answers["deleted"].status_code == 204
    return answers["sent"]


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
    experiment_id, answers = api.new_experiment(), []

    def send(start):
        parts = [
            segment(stream(run), start, start + 100, scalars("loss", range(start, start + 10)))
            for run in runs
        ]
        answers.append(api.send(experiment_id, *parts))

    send(0)
    with held_series(experiment_id) as wait_for:
        threads = [threading.Thread(target=send, args=[100]) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_for(2)
    for thread in threads:
        thread.join(60)
    *_, refused = sorted(answers, key=lambda answer: answer.status_code)
    assert [answer.status_code for answer in answers if answer is not refused] == [200, 200]
    assert (refused.json()["code"], refused.json()["offset"]) == ("cursor_conflict", 200)
    assert {
        run: tags["loss"]["count"] for run, tags in api.get(experiment_id, "scalars").items()
    } == dict.fromkeys(runs, 20)


def test_writers_of_names_in_opposite_order_never_deadlock(api):
    experiment_id, answers, together = api.new_experiment(), [], threading.Barrier(2)

    def send_all(name, order):
        for number in range(5):
            names = [f"tag {number // 2} {index}" for index in range(300)][
                ::order
            ]  # new and known in turns
            series = [scalars(name, [number]) for name in names]
            together.wait(60)
            answers.append(
                api.send(
                    experiment_id, segment(stream(file_name=name), number, number + 1, *series)
                )
            )

    threads = [threading.Thread(target=send_all, args=each) for each in (("a", 1), ("b", -1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [200] * 10
    assert len(api.get(experiment_id, "scalars")["train"]) == 3 * 300
