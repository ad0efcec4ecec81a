"""Reading changes: a reader that applies them holds what a full read returns, after any writes and
deletions.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
from starlette.testclient import TestClient

from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.change_reader import ChangeReader, by_name
from support.servers import new_owner
from tbservice import limits
from tbservice.series import compaction
from tbservice.series.tables import runs_tags
from tbservice.server.app import create_app
from tbservice.types.grants import AppendGrant

KINDS = ("scalars", "tensors", "blob_sequences")


class Writer:
    """Writes at random: in step order, repeated, between others, many at once; deletes; compacts."""

    def __init__(self, api, experiment, database, workspace_id, seed):
        self.api, self.experiment, self.database = api, experiment, database
        self.workspace_id = workspace_id
        self.random = random.Random(seed)  # noqa: S311 - a test that can be repeated
        self.files = itertools.count()
        self.times = itertools.count(1_700_000_000)
        self.last = {}

    def write(self):
        run, kind = self.random.choice("ab"), self.random.choice(("x", "x", "y", "note", "cat"))
        steps = self.steps(run, kind, is_bulk=kind in {"x", "y"})
        wall_time = next(self.times) - self.random.choice((0, 0, 0, 5_000))
        wall_times = np.full(len(steps), wall_time)
        values = np.round(self.random.random(), 6) + np.arange(len(steps))
        if kind == "note":
            series = texts(kind, steps, [str(value).encode() for value in values], wall_times)
        elif kind == "cat":
            series = images(kind, steps, [[str(value).encode()] for value in values], wall_times)
        elif len(steps) > 1_000:
            series = packed_scalars(kind, steps, values, wall_times)
        else:
            series = scalars(kind, steps, values, wall_times)
        self.api.write(self.experiment, segment(stream(run, f"f{next(self.files)}"), 0, 9, series))

    def steps(self, run, kind, *, is_bulk):
        last = self.last.get((run, kind), 0)
        first = self.random.choice(
            (last + 1, last + 1, last + 3, last, last - 7, self.random.randint(0, last + 1))
        )
        count = (
            self.random.choice((1, 2, 5, 5, 200, 200, 3_000))
            if is_bulk
            else self.random.choice((1, 3))
        )
        self.last[run, kind] = max(last, first + 2 * count)
        return np.arange(first, first + 2 * count, 2)

    def delete(self):
        run = self.random.choice("ab")
        path = self.random.choice(("runs", "series"))
        tag = {"tag": "x"} if path == "series" else {}
        self.api.request(
            "DELETE", f"/experiments/{self.experiment}/{path}", params={"run": run, **tag}
        )
        allow_again(self.api, self.experiment, run)

    def merge(self):
        grant = AppendGrant(self.workspace_id, self.experiment)
        with self.database.transaction(self.workspace_id) as db:
            for run_id in runs_tags.list_run_names(db, self.experiment):
                compaction.compact_run(db, grant, run_id, compact_idle=True)


def allow_again(api, experiment, run):
    """Let a deleted run be written again."""
    path = f"/experiments/{experiment}/runs/deleted"
    api.request("DELETE", path, params={"run": run}).raise_for_status()


def read_on(api, experiment, kind, held, limit):
    """Read until there is no more; return the number of responses."""
    portions, has_more = 0, True
    while has_more:
        answer = api.get(experiment, f"{kind}/new", since=held.cursor or "", limit=limit)
        held.apply(answer)
        portions, has_more = portions + 1, answer["more"]
    return portions


def test_reader_holds_what_full_read_gives(settings, workspace, database, api, experiment):
    writer = Writer(api, experiment, database, workspace.workspace_id, seed=0)
    held = {kind: ChangeReader() for kind in KINDS}
    with TestClient(create_app(settings)) as other:
        workers = (api, ApiClient(other, workspace.owner_token))
        for _ in range(22):
            writer.random.choice(
                (*[writer.write] * 10, writer.delete, writer.merge, writer.merge)
            )()
            kind = writer.random.choice(KINDS)
            worker, limit = (
                writer.random.choice(workers),
                writer.random.choice((1, 30, 3_000, 100_000)),
            )
            if limit > 1:
                read_on(worker, experiment, kind, held[kind], limit)
            else:  # a portion alone: whatever comes next finds the reader in the middle
                held[kind].apply(
                    worker.get(
                        experiment, f"{kind}/new", since=held[kind].cursor or "", limit=limit
                    )
                )
        for kind in KINDS:
            read_on(api, experiment, kind, held[kind], 5_000)
            assert held[kind].by_name() == by_name(
                api.get(experiment, f"{kind}/data", downsample=200_000)
            )
            assert held[kind].sent


def test_only_new_points_travel_and_nothing_when_nothing_is_new(api, experiment):
    api.write(
        experiment,
        segment(stream(), 0, 9, scalars("loss", range(100)), scalars("accuracy", range(100))),
    )
    first = api.get(experiment, "scalars/new")
    assert [len(columns["steps"]) for columns in first["points"]["train"].values()] == [100, 100]
    again = api.get(experiment, "scalars/new", since=first["cursor"])
    assert (again["points"], again["more"], again["cursor"]) == ({}, False, first["cursor"])
    api.write(experiment, segment(stream(), 9, 19, scalars("loss", [100, 101])))
    new = api.get(experiment, "scalars/new", since=first["cursor"])["points"]["train"]
    assert {tag: (columns["steps"], columns["replaces_from"]) for tag, columns in new.items()} == {
        "loss": ([100, 101], None)
    }


def test_changes_of_rewritten_points_resend_from_first(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", range(100))))
    cursor = api.get(experiment, "scalars/new")["cursor"]
    api.write(
        experiment, segment(stream(file_name="restart"), 0, 9, scalars("loss", [90], [7], [2e9]))
    )
    (new,) = api.get(experiment, "scalars/new", since=cursor)["points"]["train"].values()
    assert (new["replaces_from"], new["steps"], new["values"][0]) == (90, list(range(90, 100)), 7)
    cursor = api.get(experiment, "scalars/new")["cursor"]
    api.write(
        experiment, segment(stream(file_name="again"), 0, 9, scalars("loss", [99], [8], [2e9]))
    )
    (new,) = api.get(experiment, "scalars/new", since=cursor)["points"]["train"].values()
    assert (new["replaces_from"], new["values"][-1]) == (90, 8)


def test_changes_from_now_contain_later_points_only(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", range(100))))
    now = api.get(experiment, "scalars/new", start="now")
    assert (now["points"], now["more"]) == ({}, False)
    api.write(experiment, segment(stream(), 9, 19, scalars("loss", [100]), scalars("late", [0])))
    new = api.get(experiment, "scalars/new", start="now", since=now["cursor"])["points"]["train"]
    assert {tag: columns["steps"] for tag, columns in new.items()} == {"loss": [100], "late": [0]}


def test_series_that_came_again_is_another_one(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", range(5))))
    first = api.get(experiment, "scalars/new")
    api.request(
        "DELETE", f"/experiments/{experiment}/runs", params={"run": "train"}
    ).raise_for_status()
    allow_again(api, experiment, "train")
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [2])))
    answer = api.get(experiment, "scalars/new", since=first["cursor"])
    assert answer["removed"] == [first["points"]["train"]["loss"]["series_id"]]
    assert answer["points"]["train"]["loss"]["steps"] == [2]


def test_change_cursor_fits_its_query_and_grants_nothing(api, client, settings, experiment):
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", range(5))))
    cursor = api.get(experiment, "scalars/new")["cursor"]
    path = f"/experiments/{experiment}/scalars/new"
    asked = {
        "another tag": (api, path, {"tag": "loss", "since": cursor}, 422),
        "another kind": (api, f"/experiments/{experiment}/tensors/new", {"since": cursor}, 422),
        "another experiment": (
            api,
            f"/experiments/{api.new_experiment()}/scalars/new",
            {"since": cursor},
            422,
        ),
        "no cursor": (api, path, {"since": "rubbish"}, 400),
        "half a cursor": (api, path, {"since": cursor[:-9]}, 400),
        "no kind": (api, f"/experiments/{experiment}/graphs/new", {}, 422),
        "a limit of nothing": (api, path, {"limit": 0}, 422),
        "a stranger": (
            ApiClient(client, new_owner(settings.database_url.get_secret_value())),
            path,
            {"since": cursor},
            404,
        ),
        "nobody": (ApiClient(client, None), path, {"since": cursor}, 401),
    }
    answers = {
        name: who.request("GET", to, params=query).status_code
        for name, (who, to, query, _) in asked.items()
    }
    assert answers == {name: status for name, (*_, status) in asked.items()}


def test_change_cursor_limits_its_number_of_series(api, experiment, monkeypatch):
    api.write(experiment, segment(stream(), 0, 9, *[scalars(f"s{i}", [0]) for i in range(4)]))
    monkeypatch.setattr(limits, "CURSOR_SERIES_ITEMS_MAX", 3)
    refused = api.request("GET", f"/experiments/{experiment}/scalars/new")
    assert (refused.status_code, "follow fewer" in refused.json()["detail"]) == (413, True)
    assert len(api.get(experiment, "scalars/new", tag=["s0", "s1", "s2"])["points"]["train"]) == 3


def test_large_tensors_come_in_portions(api, experiment, monkeypatch):
    monkeypatch.setattr("tbservice.reading.pending_points.CHANGES_BYTES_MAX", 5_000)
    long = [bytes([65 + i]) * 3_000 for i in range(5)]
    api.write(
        experiment,
        segment(
            stream(), 0, 9, texts("note", range(5), long), texts("other", [1, 2], [b"a", b"b"])
        ),
    )
    held = ChangeReader()
    portions = read_on(api, experiment, "tensors", held, 100)
    assert portions >= 5
    assert held.by_name() == by_name(api.get(experiment, "tensors/data"))
