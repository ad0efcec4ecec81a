"""The table of runs of a workspace: columns, filters, order and pages, over HTTP."""

from __future__ import annotations

import math
import time

import pytest

from support.batches import scalars, segment, stream
from support.hparams import HparamsClient, end, start

LR = (0.1, 0.01, 0.001, "auto")


@pytest.fixture(scope="module")
def sweep(shared_api):
    """Two experiments: four runs with hyperparameters, of which one is in part of a session."""
    client = HparamsClient(shared_api)
    for number, lr in enumerate(LR):
        client.write(
            f"r{number}",
            start({"lr": lr, "optimizer": ("adam", "sgd")[number % 2], "norm": number > 1}),
            end("STATUS_FAILURE" if number == 3 else "STATUS_SUCCESS"),
            scalars("loss", [1, 2, 3], [3.0 - number, 1.0 + number, 2.0 + number]),
        )
    client.write("r0/validation", scalars("val/loss", [1], [0.5]))
    client.write("plain", scalars("loss", [1, 2], [math.nan, math.inf]))
    return Table(client.api, client.experiment_id)


class Table:
    """Asks for the table of the workspace of a token."""

    def __init__(self, api, experiment):
        self.api, self.experiment = api, experiment
        workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]
        self.path = f"/workspaces/{workspace}/runs"

    def ask(self, where="", **query):
        return self.api.request("GET", self.path, params={"where": where, **query})

    def get(self, where="", **query):
        answer = self.ask(where, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def runs(self, where="", **query):
        return [run["run"] for run in self.get(where, **query)["runs"]]

    def problem(self, where="", **query):
        answer = self.ask(where, **query)
        return answer.status_code, answer.json()["code"], answer.json()["detail"]


@pytest.mark.parametrize(
    ("where", "runs"),
    [
        ("", ["r0", "r1", "r2", "r3", "r0/validation", "plain"]),
        ('lr < 0.05 and optimizer = "adam" and loss.min < 3', ["r2"]),
        ("lr < 0.05", ["r1", "r2"]),
        ('lr = "auto"', ["r3"]),
        ("lr != 0.1", ["r1", "r2"]),
        ("not lr = 0.1", ["r1", "r2", "r3", "plain"]),
        ("norm = true", ["r2", "r3"]),
        ("lr is missing", ["plain"]),
        ("lr is not missing and loss is missing", ["r0/validation"]),
        ('optimizer ~ "^ad" or status = "failure"', ["r0", "r2", "r3", "r0/validation"]),
        ('(lr = 0.1 or lr = 0.01) and not run ~ "/"', ["r0", "r1"]),
        ("loss.not_finite = 2", ["plain"]),
        ("loss = inf", ["plain"]),
        ("loss.min = 1 and loss.min_step = 2", ["r0"]),
        ("`val/loss`.last <= 0.5", ["r0/validation"]),
        ("val/loss.points = 1", ["r0/validation"]),
        ("metric.loss.max > 4 and hparam.lr is not missing", ["r3"]),
        ('experiment = "nothing"', []),
    ],
)
def test_runs_filter_selects(sweep, where, runs):
    assert sorted(sweep.runs(where)) == sorted(runs)


@pytest.mark.parametrize(
    ("sort", "runs"),
    [
        (["lr", "run"], ["r2", "r1", "r0", "r0/validation", "r3", "plain"]),
        (["-lr", "-run"], ["r3", "r0/validation", "r0", "r1", "r2", "plain"]),
        (["-loss.max", "run"], ["r3", "r2", "r0", "r1", "plain", "r0/validation"]),
    ],
)
def test_runs_are_sorted_and_paged(sweep, sort, runs):
    assert sweep.runs(sort=sort) == runs
    after, paged = None, []
    while True:
        more = {"after": after} if after else {}
        page = sweep.get(sort=sort, limit=2, column=["run"], **more)
        assert page["total"] == len(runs)
        paged += [run["run"] for run in page["runs"]]
        after = page["next"]
        if after is None:
            break
    assert paged == runs


def test_runs_have_values_of_columns(sweep):
    columns = ["experiment", "status", "lr", "loss", "loss.min", "loss.not_finite", "loss.points"]
    (run,) = sweep.get('run = "plain"', column=columns)["runs"]
    values = [sweep.experiment, "unknown", None, "Infinity", None, 2, 2]
    assert run == dict(zip(columns, values, strict=True))
    (run,) = sweep.get('run = "r0/validation"', column=["lr", "status"])["runs"]
    assert run == {"lr": 0.1, "status": "success"}


def test_run_without_session_end_has_status_of_training(sweep):
    api, experiment = sweep.api, sweep.api.new_experiment()
    api.write(experiment, segment(stream("new"), 0, 9, scalars("loss", [1], [1], [time.time()])))
    upload = f"/experiments/{experiment}/uploads/{'a' * 16}"
    begun = {"started_at": "2026-01-31T12:00:00Z", "status_of": "training"}
    for method, fields, status in (
        ("GET", None, "running"),
        ("PUT", begun, "running"),
        ("PATCH", {"status": "killed"}, "failure"),
        ("PATCH", {"status": "finished"}, "success"),
    ):
        if fields is not None:
            api.request(method, upload, json=fields).raise_for_status()
        assert sweep.get('run = "new"', column=["status"])["runs"] == [{"status": status}]
    api.request("DELETE", f"/experiments/{experiment}").raise_for_status()


def test_runs_columns_are_listed(sweep):
    page = sweep.get(available=True)
    assert page["available"]["hparams"] == {"lr": 5, "norm": 5, "optimizer": 5}
    assert page["available"]["metrics"] == {"loss": 5, "val/loss": 1}
    assert {"lr", "norm", "optimizer", "loss", "val/loss", "run"} <= set(page["columns"])
    assert (page["pending"], page["left_out"]) == (0, False)


def test_runs_are_grouped_with_means(sweep):
    page = sweep.get(group_by=["optimizer"], column=["loss", "loss.min", "lr", "run"])
    assert page["grouped"] == {"by": ["optimizer"], "of": ["loss", "loss.min", "lr", "run"]}
    assert (page["total"], page["next"]) == (3, None)
    adam, sgd, plain = page["runs"]
    assert (adam["optimizer"], adam["runs"], adam["loss.count"]) == ("adam", 3, 2)
    assert (adam["loss.mean"], adam["loss.std"]) == (3.0, pytest.approx(2**0.5))
    assert (adam["loss.min.mean"], adam["lr.count"], adam["run.mean"]) == (1.0, 3, None)
    assert (sgd["lr.mean"], sgd["lr.std"], sgd["lr.count"]) == (0.01, None, 1)
    assert (plain["optimizer"], plain["loss.mean"], plain["loss.count"]) == (None, None, 0)
    assert page["columns"] == list(adam)


def test_runs_groups_are_sorted_and_named(sweep):
    groups = sweep.get(group_by=["lr"], sort=["-loss"], column=["loss"])["runs"]
    assert [group["lr"] for group in groups] == ["auto", 0.001, 0.01, 0.1, None]
    groups = sweep.get(group_by=["lr"], sort=["runs", "-lr"], column=["loss"], limit=2)
    assert [group["lr"] for group in groups["runs"]] == ["auto", 0.01]
    assert groups["total"] == 5
    groups = sweep.get(run_pattern=r"^(r\d|plain)$", column=["val/loss"], where="lr = 0.1")["runs"]
    assert [(each["run_pattern"], each["val/loss.count"]) for each in groups] == [
        ("r0", 0),
        (None, 1),
    ]
    assert sweep.get(group_by=["-lr"])["grouped"]["by"] == ["norm", "optimizer"]
    assert sweep.problem(group_by=["lr"], after="x")[:2] == (422, "invalid")
    assert "did you mean optimizer" in sweep.problem(group_by=["optimiser"])[2]


def test_runs_group_named_as_another_column(api):
    client = HparamsClient(api)
    client.write("a", start({"runs": 7, "loss.mean": 5}), scalars("loss", [1], [0.5]))
    where = f'experiment = "{client.experiment_id}"'
    (group,) = Table(api, "").get(where, group_by=["*"], column=["loss"])["runs"]
    assert group == {
        "hparam.loss.mean": 5.0,
        "hparam.runs": 7.0,
        "runs": 1,
        "loss.mean": 0.5,
        "loss.std": None,
        "loss.count": 1,
    }


@pytest.mark.parametrize(
    ("where", "code", "detail"),
    [
        ("lr <", "invalid_filter", "character 5: expected a number"),
        ("lr < adam", "invalid_filter", "character 6: expected a number, a text in quotes"),
        ('lr = "x', "invalid_filter", 'character 6: the " is not closed'),
        ("lr", "invalid_filter", "character 3: expected an operator after 'lr'"),
        ("lr = 1 optimizer = 2", "invalid_filter", "character 8: expected 'and', 'or'"),
        ('run ~ "["', "invalid_filter", "character 7: not a valid RE2"),
        ("(" * 60 + "lr = 1", "invalid_filter", "levels"),
        ("lr = 1 or " * 500 + "lr = 1", "invalid_filter", "at most 4000 characters"),
        ("los.min < 1", "unknown_column", "did you mean loss"),
        ("optimiser = 1", "unknown_column", "character 1: no run has a column 'optimiser'"),
    ],
)
def test_runs_filter_errors_say_where(sweep, where, code, detail):
    status, actual, text = sweep.problem(where)
    assert (status, actual) == (422, code)
    assert detail in text


def test_runs_have_origin_and_packages_of_newest_upload(api):
    table = Table(api, api.new_experiment(origin={"host": "first"}))
    other = Table(api, api.new_experiment(origin={"host": "other"}))
    for each in (table, other):
        points = scalars("loss", [1], [0.5])
        api.write(each.experiment, segment(stream("a"), 0, 1, points))
    begun = {"started_at": "2026-01-31T12:00:00Z"}
    path = f"/experiments/{table.experiment}/uploads/{'a' * 16}"
    for version in ("2.1", "2.2"):  # a record that is replaced shows what it has now
        upload = {
            "origin": {"host": "second", "gpus": "2 x A100"},
            "packages": [f"Torch_Vision=={version}", "numpy==1.26 (local)"],
        }
        api.request("PUT", path, json=begun | upload).raise_for_status()
        columns = ["host", "gpus", "package.torch-vision"]
        newest, created = table.get(column=columns, sort=["-host"])["runs"]
        assert list(newest.values()) == ["second", "2 x A100", version]
        assert list(created.values()) == ["other", None, None]

    selected = table.get('package.Torch.Vision ~ "^2" and gpus = "2 x A100"')
    assert [run["experiment"] for run in selected["runs"]] == [table.experiment]
    groups = table.get(group_by=["package.numpy"], column=["loss"])["runs"]
    assert [group["package.numpy"] for group in groups] == ["1.26 (local)", None]
    assert table.get(available=True)["available"]["packages"] == {"numpy": 1, "torch-vision": 1}
    assert "did you mean package.numpy" in table.problem('package.nunpy = "1"')[2]


def test_runs_page_token_of_other_query_is_refused(sweep):
    after = sweep.get(limit=1)["next"]
    assert sweep.problem("lr < 1", after=after)[:2] == (400, "malformed")
    assert sweep.problem(after="e30=")[0] == 400
    assert sweep.problem(column=["nothing"])[:2] == (422, "unknown_column")
    assert sweep.problem(sort=["run"] * 6)[0] == 422


def test_runs_show_what_was_written_and_deleted(api):
    first, second = (Table(api, api.new_experiment()) for _ in range(2))
    for table in (first, second):
        points = scalars("loss", [1, 2], [2.0, 1.0])
        api.write(table.experiment, segment(stream("a"), 0, 1, points))
    where = f'experiment = "{first.experiment}"'
    assert [run["experiment"] for run in first.get(where)["runs"]] == [first.experiment]
    api.write(first.experiment, segment(stream("a"), 1, 2, scalars("loss", [2, 3], [5.0, 4.0])))
    (run,) = first.get(where, column=["loss", "loss.min", "loss.max", "loss.points"])["runs"]
    assert (run["loss"], run["loss.min"], run["loss.max"]) == (4.0, 2.0, 5.0)
    api.request("DELETE", f"/experiments/{first.experiment}/runs", params={"run": "a"})
    assert first.runs(where) == []
    assert [run["experiment"] for run in first.get()["runs"]] == [second.experiment]


def test_runs_show_hparams_that_are_set_later(api):
    client = HparamsClient(api)
    table = Table(api, client.experiment_id)
    client.write("a", scalars("loss", [1], [0.5]))
    assert table.runs("loss = 0.5") == ["a"]
    for seed in (1, 2):
        client.set_session("a", hparams={"seed": seed})
        assert table.runs(f"seed = {seed}") == ["a"]
    client.write("b", scalars("loss", [5, 6, 7], [3.0, 1.0, 2.0]))
    client.write("b", scalars("loss", [6, 7], [4.0, 5.0], [2e9, 2e9]))
    (run,) = table.get('run = "b"', column=["loss.min", "loss.max", "loss"])["runs"]
    assert run == {"loss.min": 3.0, "loss.max": 5.0, "loss": 5.0}
