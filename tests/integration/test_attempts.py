"""Attempts of a run: what a restarted job superseded is kept, listed, and read with `attempt`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import text

from support.batches import images, packed_scalars, scalars, segment, stream, texts
from support.restarted_job import Job
from support.share_links import make_link, reader_of, target_of
from support.uploading import wait_until
from tbservice import limits
from tbservice.series import superseded

SUPERSEDED_TABLES = ("superseded_blocks", "superseded_tensors", "superseded_blobs")


@pytest.fixture
def job(api, experiment, database, workspace_id):
    return Job(api, experiment, database, workspace_id)


def points(wall_time, steps, name):
    """Return one series of each data class, whose values say which file they are of."""
    steps = list(steps)
    times = [wall_time + step for step in steps]
    return (
        scalars("loss", steps, [wall_time + step / 8 for step in steps], times),
        texts("note", steps, [f"{name}{step}".encode() for step in steps], times),
        images("image", steps, [[f"{name}{step}".encode()] for step in steps], times),
    )


def expected(kind, wall_time, steps, name):
    if kind == "scalars":
        return {step: wall_time + step / 8 for step in steps}
    if kind == "tensors":
        return {step: f"{name}{step}" for step in steps}
    return {step: [f"{name}{step}".encode()] for step in steps}


KINDS = {"scalars": "loss", "tensors": "note", "blob_sequences": "image"}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_second_file_of_a_writer_begins_no_attempt(job, is_compacted):
    """Such as PyTorch's `add_hparams(…, run_name=".")` writes, of a script that is run twice."""
    for start in (1000.0, 2000.0):
        times = [start + 1 + step for step in range(20)]
        job.write(f"{start}", start, scalars("loss", range(20), wall_times=times))
        final = scalars("final/loss", [0], wall_times=[start + 31])
        hparams = texts("_hparams_/session_start_info", [0], [b"lr"], [start + 31])
        job.write(f"{start} hparams", start + 30, final, hparams)
        if is_compacted:
            job.compact()
    assert job.attempts() == [(1, 1000.0, 22), (2, 2000.0, 0)]
    assert job.read("scalars", "final/loss", attempt=1) == {0: 0.0}


def test_value_that_a_process_logs_again_begins_no_attempt(job):
    """Such as hyperparameters with a metric at the begin and at the end; another loss curve does."""
    name = "events.out.tfevents.{}.host.7.{}".format

    def write(start, number, tag, steps, process=name):
        times = [start + 1 + step for step in steps]
        job.write(process(start, number), float(start), scalars(tag, steps, wall_times=times))

    write(1000, 0, "loss", range(20))
    write(1030, 1, "final/loss", [0])
    write(1040, 2, "final/loss", [0])
    assert job.attempts() == []
    write(2000, 3, "loss", range(20))
    write(2030, 4, "final/loss", [0])
    assert job.attempts() == [(1, 1000.0, 21), (2, 2000.0, 0)]
    write(3000, 0, "loss", [19])  # another process of the same number
    assert job.attempts() == [(1, 1000.0, 21), (2, 2000.0, 1), (3, 3000.0, 0)]


def count_rows(job, table):
    with job.database.transaction(job.workspace_id) as db:
        statement = f"SELECT count(*) FROM {table} WHERE experiment_id = :id"  # noqa: S608 - a constant
        return db.execute(text(statement), {"id": job.experiment}).scalar()


def count_superseded(job):
    return {table: count_rows(job, table) for table in SUPERSEDED_TABLES}


def write_restarts(job, starts, steps):
    """Write a file per start; each has all steps again."""
    for start in starts:
        job.write(f"{start}", start, *points(start, steps, f"{start} "))
        job.compact()


def test_attempt_is_sampled_by_every_rule(job, api):
    job.write("a", 1000.0, *points(1000.0, range(40), "a"))
    job.write("b", 2000.0, *points(2000.0, range(20, 48), "b"))
    path = f"/experiments/{job.experiment}/scalars/data"
    alone = api.new_experiment(*points(1000.0, range(40), "a"))
    for query in (
        {"downsample": 7},
        {"sampling": "linear", "downsample": 7},
        {"sampling": "extremes", "downsample": 20},
        {"sampling": "bernoulli", "percent": 20, "seed": 3},
        {"last": 9},
        {"last": 9, "downsample": 3},
        {"step_min": 36, "step_max": 44},
        {"downsample": 0},
    ):
        kinds = ("scalars",) if query.get("sampling") == "extremes" else KINDS
        for kind in kinds:
            read = api.get(job.experiment, f"{kind}/data", attempt=1, **query)
            expected = api.get(alone, f"{kind}/data", **query)
            assert without_keys(read) == without_keys(expected), (kind, query)
    for form in ("csv", "parquet", "arrow", "points"):
        for sampling in ("uniform", "all"):
            query = {"format": form, "sampling": sampling}
            read = api.request("GET", path, params={"attempt": 1, **query}).content
            whole = api.request("GET", path, params=query).content
            assert read != whole
            other = api.request("GET", f"/experiments/{alone}/scalars/data", params=query).content
            assert read == other, query


def without_keys(read):
    """Leave out blob keys, which name their experiment."""
    if isinstance(read, dict):
        return {name: without_keys(value) for name, value in read.items() if name != "key"}
    return [without_keys(value) for value in read] if isinstance(read, list) else read


def test_files_written_at_once_keep_nothing(job):
    """Several processes write the same steps to one run: their repeats are no attempts.

    Only the first points, before others of older files came, looked like an attempt.
    """
    for step in range(6):
        for rank in range(3):
            time = 1000.0 + step + rank / 8
            sent = points(time, [0], f"{rank} "), points(time, [step], f"{rank} ")
            job.write(f"rank {rank}", 1000.0 + rank / 8, *sent[step > 0])
        job.compact()
    assert job.attempts() == []
    assert max(count_superseded(job).values()) <= 3
    assert job.read("scalars", "loss")[5] == 1000.0 + 5 + 2 / 8 + 5 / 8


def test_late_file_beside_another_keeps_one_point_of_step(job):
    """Until the older file has later points, the newer one looks like a restart."""
    job.write("a", 1000.0, *points(1000.0, range(10), "a"))
    job.write("b", 1100.0, *points(1100.0, range(10), "b"))
    assert [points for _, _, points in job.attempts()] == [30, 0]
    for time in range(1200, 1210):  # the older one repeats all steps, again and again
        job.write("a", 1000.0, *points(float(time), range(10), "a"))
    job.compact()
    assert job.attempts() == []
    assert count_rows(job, "superseded_tensors") == count_rows(job, "superseded_blobs") == 10
    assert job.read("tensors", "note", attempt=1) == expected("tensors", 1209.0, range(10), "a")


def test_restarts_over_the_limit_lose_nothing_that_is_shown(job, monkeypatch):
    monkeypatch.setattr(limits, "RUN_FILES_MAX", 3)
    starts = [1000.0 * number for number in range(1, 6)]
    write_restarts(job, starts, range(15))
    assert [(number, start) for number, start, _ in job.attempts()] == [
        (1, 1000.0),
        (2, 2000.0),
        (3, 3000.0),
    ]
    assert count_rows(job, "superseded_tensors") == 2 * 15
    for kind, tag in KINDS.items():
        assert job.read(kind, tag) == expected(kind, 5000.0, range(15), "5000.0 ")
        assert job.read(kind, tag, attempt=2) == expected(kind, 2000.0, range(15), "2000.0 ")


def test_attempt_that_no_run_has_is_not_found(job, api, experiment):
    write_restarts(job, [1000.0, 2000.0], range(10))
    for kind in KINDS:
        for sampling in ("uniform", "all"):
            answer = api.request(
                "POST",
                f"/experiments/{experiment}/{kind}/data",
                json={"attempt": 3, "sampling": sampling},
            )
            assert (answer.status_code, answer.json()["code"]) == (404, "attempt_not_found")
            assert "at most 2 attempts" in answer.json()["detail"]
    for number in (0, -1, "first"):
        path = f"/experiments/{experiment}/scalars/data"
        assert api.request("GET", path, params={"attempt": number}).status_code == 422


def test_link_lists_attempts_of_what_it_shows(client, job, api):
    write_restarts(job, [1000.0, 2000.0], range(10))
    for start in (1000.0, 2000.0, 3000.0):
        of = stream("hidden", f"{start}")
        api.write(job.experiment, segment(of, 0, 9, *points(start, [1], "h"), start_time=start))
    reader = reader_of(client, make_link(api, job.experiment, runs="train", tags="loss"))
    (run,) = reader.get(job.experiment, "attempts")["runs"]
    assert (run["run"], [a["superseded_points"] for a in run["attempts"]]) == ("train", [10, 0])
    read = reader.get(job.experiment, "scalars/data", attempt=1)
    assert read["train"]["loss"]["wall_times"][0] == 1000.0
    answer = reader.request(
        "GET", f"/experiments/{job.experiment}/scalars/data", params={"attempt": 3}
    )
    assert "at most 2 attempts" in answer.json()["detail"]


def test_frozen_copy_has_what_is_shown_only(client, job, api):
    write_restarts(job, [1000.0, 2000.0], range(20))
    job.write("c", 3000.0, *points(3000.0, range(5), "c"))
    link = make_link(api, job.experiment, frozen=True)
    copy, reader = target_of(link), reader_of(client, link)
    assert reader.get(copy, "attempts") == {"runs": []}
    shown = reader.get(copy, "scalars/data", downsample=1000)
    assert shown == api.get(job.experiment, "scalars/data", downsample=1000)
    assert reader.get(copy, "scalars/data", downsample=1000, attempt=1) == shown


def test_objects_of_superseded_blobs_are_checked(job, api):
    write_restarts(job, [1000.0, 2000.0], range(10))
    assert api.get(job.experiment, "digests/objects")["objects"] == 20


@pytest.mark.parametrize("what", ["run", "series"])
def test_deletion_takes_superseded_points(job, api, what):
    write_restarts(job, [1000.0, 2000.0], range(70))
    assert all(count_superseded(job).values())
    fields = [{"run": "train"}]
    if what == "series":
        fields = [{"run": "train", "tag": tag} for tag in KINDS.values()]
    for selected in fields:
        path = f"/experiments/{job.experiment}/{'runs' if what == 'run' else 'series'}"
        answer = api.request("DELETE", path, params=selected)
        assert answer.status_code == 204, answer.text
    assert count_superseded(job) == dict.fromkeys(SUPERSEDED_TABLES, 0)
    assert api.get(job.experiment, "attempts") == {"runs": []}


def test_superseded_blocks_are_merged_while_a_job_repeats_steps(job):
    count = 3 * limits.BLOCK_POINTS_MAX
    times = 1000.0 + np.arange(count) / 1000
    job.write("a", 1000.0, packed_scalars("loss", np.arange(count), wall_times=times))
    job.compact()
    for number, steps in enumerate(np.array_split(np.arange(count), 16)):
        later = np.full(len(steps), 2000.0 + number)
        job.write("b", 2000.0, packed_scalars("loss", steps, wall_times=later))
        job.compact()
    assert job.attempts() == [(1, 1000.0, count), (2, 2000.0, 0)]
    assert count_rows(job, "superseded_blocks") <= 5
    columns = job.api.get(job.experiment, "scalars/data", attempt=1, downsample=2 * count)["train"][
        "loss"
    ]
    assert columns["wall_times"] == times.tolist()


def test_attempt_with_steps_in_any_order_is_complete(job, monkeypatch):
    monkeypatch.setattr(superseded, "_REWRITE_FACTOR", 0)  # never merge: blocks overlap
    rng = np.random.default_rng(5)
    steps = np.arange(20_000)
    job.write("a", 1000.0, scalars("loss", steps, wall_times=1000.0 + steps / 100))
    job.compact()
    for part in np.array_split(rng.permutation(steps), 8):
        part.sort()
        job.write("b", 2000.0, scalars("loss", part, wall_times=np.full(len(part), 2000.0)))
        job.compact()
    assert count_rows(job, "superseded_blocks") > 4
    assert job.attempts() == [(1, 1000.0, 20_000), (2, 2000.0, 0)]
    assert list(job.read("scalars", "loss", attempt=1, downsample=20_000)) == steps.tolist()


def test_file_that_is_added_during_a_batch_keeps_its_points(job, count_waiting):
    """The batch reads its streams before it waits for the series; meanwhile the job restarts."""
    job.write("a", 1000.0, *points(1000.0, range(5), "a"))
    with ThreadPoolExecutor(2) as threads, job.database.transaction(job.workspace_id) as db:
        lock = "SELECT FROM time_series WHERE experiment_id = :id FOR UPDATE"
        db.execute(text(lock), {"id": job.experiment})
        later = threads.submit(job.write, "b", 2000.0, *points(2000.0, range(5, 9), "b"))
        wait_until(lambda: count_waiting() == 1)
        resumed = threads.submit(job.write, "a", 1000.0, *points(1500.0, range(5, 9), "a"))
        wait_until(lambda: count_waiting() == 2)
    for sent in (later, resumed):
        sent.result()
    assert job.attempts() == [(1, 1000.0, 12), (2, 2000.0, 0)]
    for kind, tag in KINDS.items():
        first = expected(kind, 1000.0, range(5), "a") | expected(kind, 1500.0, range(5, 9), "a")
        assert job.read(kind, tag, attempt=1) == first
