"""Curves of groups of runs over HTTP: beside numpy, with missing steps, restarts and wrong queries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.batches import scalars, segment, stream
from support.hparams import HparamsClient, start
from tbservice.runs import curves, grouping

LENGTH = 60
RATES = {"adam": 0.1, "sgd": "auto"}


class Curves:
    """Asks for curves of the workspace of a token."""

    def __init__(self, api):
        self.api = api
        workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]
        self.path = f"/workspaces/{workspace}/runs/curves"

    def ask(self, metric="loss", **query):
        return self.api.request("GET", self.path, params={"metric": metric, **query})

    def get(self, metric="loss", **query):
        answer = self.ask(metric, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()["groups"]

    def problem(self, metric="loss", **query):
        answer = self.ask(metric, **query)
        return answer.status_code, answer.json()["code"], answer.json()["detail"]


@pytest.fixture(scope="module")
def points():
    """Points of each run: those of seed 2 miss every second step, those of seed 3 the second half."""
    generator = np.random.default_rng(7)
    return {
        (optimizer, seed): (steps, generator.normal(size=len(steps)))
        for optimizer in RATES
        for seed, steps in enumerate(
            (np.arange(LENGTH), np.arange(LENGTH), np.arange(0, LENGTH, 2), np.arange(LENGTH // 2))
        )
    }


@pytest.fixture(scope="module")
def sweep(shared_api, points):
    """Two optimizers with four seeds, in two experiments, and a run without hyperparameters."""
    clients = [HparamsClient(shared_api) for _ in range(2)]
    for (optimizer, seed), (steps, values) in points.items():
        hparams = {"lr": RATES[optimizer], "optimizer": optimizer, "seed": seed}
        run = f"{optimizer}/seed_{seed}"
        clients[seed % 2].write(run, start(hparams), scalars("loss", steps, values))
    clients[0].write("plain", scalars("loss", [1, 2, 3], [math.nan, 5.0, math.inf]))
    clients[0].write("plain", scalars("accuracy", [1], [0.5]))
    return Curves(shared_api)


def model(points, optimizer, quantiles=()):
    """Rows of counts and statistics at each step, by numpy alone."""
    rows = []
    for step in range(LENGTH):
        values = [
            np.interp(step, steps, values)
            for (name, _), (steps, values) in points.items()
            if name == optimizer and steps[0] <= step <= steps[-1]
        ]
        deviation = np.std(values, ddof=1)
        rows.append(
            [
                len(values),
                np.mean(values),
                deviation,
                deviation / math.sqrt(len(values)),
                np.median(values),
                min(values),
                max(values),
                *np.quantile(values, quantiles),
            ]
        )
    return np.array(rows)


@pytest.mark.parametrize("group_by", [["optimizer"], ["-seed"], ["*", "-seed"], ["lr"]])
def test_curves_of_groups_are_those_of_numpy(sweep, points, group_by):
    where = "seed is not missing"
    groups = sweep.get(where=where, group_by=group_by, quantile=[0.05, 0.9])
    assert [group["runs"] for group in groups] == [4, 4]
    expected_groups = [
        {
            name: {"optimizer": optimizer, "lr": RATES[optimizer]}[name]
            for name in groups[0]["group"]
        }
        for optimizer in RATES
    ]
    assert [group["group"] for group in groups] == expected_groups
    for group, optimizer in zip(groups, RATES, strict=True):
        assert group["steps"] == list(range(LENGTH))
        names = ("count", "mean", "std", "stderr", "median", "min", "max")
        columns = [*(group[name] for name in names), *group["quantiles"].values()]
        assert list(group["quantiles"]) == ["0.05", "0.9"]
        np.testing.assert_allclose(np.transpose(columns), model(points, optimizer, (0.05, 0.9)))


def test_curve_is_same_whatever_else_is_shown(sweep):
    alone = sweep.get(where='optimizer = "sgd"', downsample=7)
    among = sweep.get(group_by=["optimizer"], downsample=7)
    assert alone[0] | {"group": {"optimizer": "sgd"}} == among[1]
    assert among[1]["steps"] == [0, 10, 20, 30, 39, 49, 59]
    assert among[1]["total"] == LENGTH
    every = sweep.get(where='optimizer = "sgd"', every=25, step_min=-30, step_max=50)
    whole = sweep.get(where='optimizer = "sgd"')
    assert every[0]["steps"] == [0, 25, 50]
    assert every[0]["std"] == [whole[0]["std"][step] for step in (0, 25, 50)]
    ranged = sweep.get(where='optimizer = "sgd"', step_min=11, step_max=12)
    assert (ranged[0]["mean"], ranged[0]["total"]) == (whole[0]["mean"][11:13], 2)


def test_curve_of_one_run_has_no_deviation_and_counts_nan(sweep):
    (group,) = sweep.get(where='run = "plain"')
    assert (group["steps"], group["count"], group["not_finite"]) == (
        [1, 2, 3],
        [0, 1, 0],
        [1, 0, 1],
    )
    assert (group["mean"], group["std"]) == ([None, 5.0, None], [None] * 3)


def test_runs_are_grouped_by_pattern_and_by_experiment(sweep):
    groups = sweep.get(run_pattern=r"^(\w+)/seed", where="loss is not missing")
    counts = [(group["group"]["run_pattern"], group["runs"]) for group in groups]
    assert counts == [("adam", 4), ("sgd", 4), (None, 1)]
    groups = sweep.get(group_by=["experiment", "optimizer"])
    assert sorted(group["runs"] for group in groups) == [1, 2, 2, 2, 2]
    (group,) = sweep.get("accuracy", group_by=["optimizer"])
    assert (group["group"], group["runs"]) == ({"optimizer": None}, 1)
    assert sweep.get(where='run = "nothing"') == []


@pytest.mark.parametrize(
    ("query", "code", "detail"),
    [
        (
            {"metric": "los"},
            "unknown_column",
            "metric: no run has a scalar tag 'los': did you mean",
        ),
        ({"group_by": ["sed"]}, "unknown_column", "group_by: no run has a column 'sed': did you"),
        ({"group_by": ["-sed"]}, "unknown_column", "'sed': did you mean seed"),
        ({"group_by": ["-run"]}, "invalid", "leaves out no hyperparameter"),
        ({"run_pattern": "("}, "invalid", "run_pattern: not a valid RE2"),
        ({"run_pattern": "(a)(b)"}, "invalid", "run_pattern: 2 groups"),
        ({"where": "lr <"}, "invalid_filter", "character 5"),
        ({"quantile": [0.1 + n / 100 for n in range(21)]}, "invalid", "21 are over"),
        ({"quantile": [1.5]}, "invalid", "quantile"),
        ({"downsample": 0}, "invalid", "downsample"),
        ({"every": 0}, "invalid", "every"),
        ({"step_min": 9, "step_max": 3}, "invalid", "'step_min' is greater than 'step_max'"),
    ],
)
def test_curves_say_what_is_wrong(sweep, query, code, detail):
    status, actual, text = sweep.problem(**query)
    assert status == 422
    assert detail in text
    assert actual == code


@pytest.mark.parametrize(
    ("module", "name", "limit", "detail"),
    [
        (
            grouping,
            "RUN_GROUP_ITEMS_MAX",
            3,
            "form 5 groups, over the limit of 3 (run_group_items_",
        ),
        (grouping, "GROUP_COLUMN_ITEMS_MAX", 1, "2 columns are over the limit of 1 (group_column"),
        (
            curves,
            "CURVE_RUNS_ITEMS_MAX",
            8,
            "9 runs are over the limit of 8 (curve_runs_items_max)",
        ),
        (curves, "CURVE_POINTS_MAX", 9, "points, over the limit of 9 (curve_points_max)"),
        (curves, "CURVE_STEPS_MAX", 20, "choose downsample=4"),
    ],
)
def test_curves_over_limit_are_refused_unread(sweep, monkeypatch, module, name, limit, detail):
    monkeypatch.setattr(module, name, limit)
    monkeypatch.delattr(curves, "read_scalar_chunks")  # nothing may be read
    status, code, text = sweep.problem(group_by=["experiment", "optimizer"])
    assert status == (422 if code == "invalid" else 413)
    assert detail in text


def test_curves_have_etag_of_their_runs(api):
    client, other = (HparamsClient(api, api.new_experiment()) for _ in range(2))
    table = Curves(api)
    client.write("a", start({"seed": 1}), scalars("loss", [1, 2], [1.0, 2.0]))
    query = {"params": {"metric": "loss", "where": f'experiment = "{client.experiment_id}"'}}
    first = api.request("GET", table.path, **query)
    unchanged = {"headers": {"If-None-Match": first.headers["ETag"]}}
    assert api.request("GET", table.path, **query, **unchanged).status_code == 304
    other.write("b", scalars("loss", [1], [9.0]))
    assert api.request("GET", table.path, **query, **unchanged).status_code == 304
    client.write("a", scalars("loss", [2, 3], [5.0, 6.0], [2e9, 2e9]))
    (group,) = api.request("GET", table.path, **query, **unchanged).json()["groups"]
    assert (group["steps"], group["mean"]) == ([1, 2, 3], [1.0, 5.0, 6.0])
    client.set_session("a", hparams={"seed": 2})
    posted = {"metric": "loss", "group_by": ["seed"], "where": query["params"]["where"]}
    (group,) = api.request("POST", table.path, json=posted).json()["groups"]
    assert group["group"] == {"seed": 2}


def test_curves_of_groups_that_are_read_apart(sweep, monkeypatch):
    together = sweep.get(group_by=["optimizer"], every=1)
    monkeypatch.setattr(curves, "_READ_POINTS", 1)
    assert sweep.get(group_by=["optimizer"], every=1, step_max=10**6) == together


def test_curves_of_runs_without_common_step(api):
    experiment = api.new_experiment()
    for run, steps in {"a": [1, 2], "b": [5, 6], "c": [-(2**63), 2**63 - 1]}.items():
        api.write(experiment, segment(stream(run), 0, 1, scalars("loss", steps, [1.0, 3.0])))
    (group,) = Curves(api).get(where=f'experiment = "{experiment}" and run != "c"')
    assert (group["count"], group["mean"]) == ([1, 1, 1, 1], [1.0, 3.0, 1.0, 3.0])
    (group,) = Curves(api).get(where=f'experiment = "{experiment}"')
    assert group["mean"][1:5] == [1.5, 2.5, 1.5, 2.5]
    grid = Curves(api).get(where=f'experiment = "{experiment}"', every=2**62)
    assert grid[0]["steps"] == [-(2**63), -(2**62), 0, 2**62]
