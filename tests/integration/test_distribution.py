"""The distribution of a metric over all runs of an experiment: beside numpy, and the nearest run."""

from __future__ import annotations

import numpy as np
import pytest

from support import hparams
from support.batches import scalars, segment, stream
from support.share_links import make_link
from tbservice.runs import distribution

RUNS, LENGTH = 30, 300


@pytest.fixture
def values():
    """A value of each run at each step; run 3 has only NaN, run 5 the first half."""
    values = np.random.default_rng(1).normal(size=(RUNS, LENGTH))
    values[3] = np.nan
    return values


@pytest.fixture
def experiment(api, values):
    experiment = api.new_experiment()
    for run, row in enumerate(values):
        end = LENGTH // 2 if run == 5 else LENGTH
        points = scalars("loss", np.arange(end), row[:end])
        api.write(experiment, segment(stream(f"run{run}"), 0, 1, points))
    values[5, LENGTH // 2 :] = np.nan
    return experiment


def test_distribution_is_that_of_numpy_on_all_points(api, experiment, values):
    answer = api.get(experiment, "scalars/distribution", tag="loss")
    steps = answer["steps"]
    assert (len(steps), steps[0], steps[-1]) == (distribution.STEPS_MAX, 0, LENGTH - 1)
    assert answer["count"] == (~np.isnan(values)).sum(axis=0)[steps].tolist()
    for name, quantile in answer["quantiles"].items():
        expected = np.nanquantile(values[:, steps], float(name), axis=0)
        np.testing.assert_allclose(quantile, expected)
    density = answer["density"]
    at = np.broadcast_to(np.arange(LENGTH), values.shape)[~np.isnan(values)]
    counts, _, _ = np.histogram2d(
        at,
        values[~np.isnan(values)],
        [density["edges"], np.linspace(density["low"], density["high"], distribution.ROWS + 1)],
    )
    assert density["counts"] == counts.tolist()
    assert answer["runs"] == RUNS
    assert answer["points"] == counts.sum()


def test_density_without_outliers_ends_near_quantiles(api, experiment, values):
    api.write(experiment, segment(stream("far"), 0, 1, scalars("loss", [0, 9], [1e30, -1e30])))
    whole = api.get(experiment, "scalars/distribution", tag="loss")
    assert (whole["density"]["high"], whole["density"]["outside"]) == (1e30, 0)
    answer = api.get(experiment, "scalars/distribution", tag="loss", skip_outliers=True)
    density, finite = answer["density"], values[np.isfinite(values)]
    assert (density["low"], density["high"]) == (finite.min(), finite.max())
    assert (density["outside"], np.sum(density["counts"])) == (2, len(finite))
    assert answer["points"] == whole["points"] == len(finite) + 2


def test_distribution_of_range_of_steps(api, experiment, values):
    answer = api.get(experiment, "scalars/distribution", tag="loss", step_min=200, step_max=209)
    assert answer["steps"] == list(range(200, 210))
    assert answer["points"] == (~np.isnan(values[:, 200:210])).sum()
    refused = api.request(
        "GET",
        f"/experiments/{experiment}/scalars/distribution",
        params={"tag": "loss", "step_min": 2, "step_max": 1},
    )
    assert refused.status_code == 422


def test_nearest_run_is_found_and_follows_new_points(api, experiment, values):
    for run, step in ((0, 0), (7, LENGTH - 1), (29, 0)):
        place = {"tag": "loss", "step": step, "value": values[run, step]}
        answer = api.get(experiment, "scalars/nearest", **place)
        assert (answer["run"], answer["step"]) == (f"run{run}", step)
    far = {"tag": "loss", "step": 10**6, "value": 100}
    api.write(experiment, segment(stream("new"), 0, 1, scalars("loss", [LENGTH - 1], [99.0])))
    assert api.get(experiment, "scalars/nearest", **far)["run"] == "new"
    only_nan = {"tag": "gone", "step": 0, "value": 0}
    api.write(experiment, segment(stream("nan"), 0, 1, scalars("gone", [0], [np.nan])))
    for tag in ("gone", "nothing"):
        path = f"/experiments/{experiment}/scalars/nearest"
        refused = api.request("GET", path, params=only_nan | {"tag": tag})
        assert refused.status_code == 404


def test_distribution_of_share_link_has_its_runs(api, client, experiment, values):
    token = make_link(api, experiment, runs="run[12]")["token"]
    headers = {"Authorization": f"Bearer {token}"}
    base = f"/api/v1/experiments/{experiment}/scalars"
    answer = client.get(f"{base}/distribution?tag=loss", headers=headers).json()
    assert answer["runs"] == 2
    np.testing.assert_allclose(
        answer["quantiles"]["0.5"], values[1:3, answer["steps"]].mean(axis=0)
    )
    place = f"tag=loss&step=0&value={values[7, 0]}"
    near = client.get(f"{base}/nearest?{place}", headers=headers).json()
    assert near["run"] in {"run1", "run2"}


def test_distribution_of_filter_has_its_runs(api, experiment, values):
    for run in range(4):
        session = hparams.start({"lr": run / 10})
        api.write(experiment, segment(stream(f"run{run}", "h"), 0, 1, session))
    selection = {"tag": "loss", "where": "lr < 0.15"}
    answer = api.get(experiment, "scalars/distribution", **selection)
    assert answer["runs"] == 2
    median = values[:2, answer["steps"]].mean(axis=0)
    np.testing.assert_allclose(answer["quantiles"]["0.5"], median)
    near = api.get(experiment, "scalars/nearest", **selection, step=0, value=values[7, 0])
    assert near["run"] in {"run0", "run1"}
    path = f"/experiments/{experiment}/scalars/distribution"
    for where, status in (("lr > 9", 404), ("lr <", 422), ("no_column = 1", 422)):
        refused = api.request("GET", path, params={"tag": "loss", "where": where})
        assert refused.status_code == status


def test_distribution_over_limit_is_refused(api, experiment, monkeypatch):
    monkeypatch.setattr(distribution, "CURVE_RUNS_ITEMS_MAX", RUNS - 1)
    path = f"/experiments/{experiment}/scalars/distribution"
    refused = api.request("GET", path, params={"tag": "loss"})
    assert refused.status_code == 413
    assert "30 runs with" in refused.json()["detail"]
