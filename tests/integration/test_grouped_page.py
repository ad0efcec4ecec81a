"""Groups of runs in TensorBoard's page: the curves of the API, bands, share links, wrong addresses."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.batches import scalars, segment, stream
from support.hparams import HparamsClient, start
from tbservice.runs.grouped_reader import (
    GroupsQuery,
    format_groups,
    format_key,
    groups_address,
    parse_groups,
)

LENGTH = 40
BY_OPTIMIZER = GroupsQuery(("optimizer",))


@pytest.fixture
def sweep(api):
    """Two optimizers with three seeds in two experiments: seed 2 has every second step alone."""
    clients = [HparamsClient(api, api.new_experiment()) for _ in range(2)]
    generator = np.random.default_rng(3)
    for optimizer in ("adam", "sgd"):
        for seed in range(3):
            steps = np.arange(0, LENGTH, 1 if seed < 2 else 2)
            client, run = clients[seed % 2], f"{optimizer}/{seed}"
            client.write(run, start({"optimizer": optimizer, "lr/rate": 0.1, "seed": seed}))
            client.write(run, scalars("train/loss", steps, generator.normal(size=len(steps))))
    return clients


@pytest.fixture
def page(api, client, sweep):
    return Page(client, [each.experiment_id for each in sweep], bearer(api))


def bearer(api):
    return {"Authorization": api.headers["Authorization"]}


class Page:
    """Asks for the data of TensorBoard's page as its scripts do."""

    def __init__(self, client, ids, headers):
        self.client, self.ids, self.headers = client, ids, headers

    def ask(self, query, path="", **fields):
        address = f"{groups_address(self.ids, query)}{path}"
        method = "POST" if fields else "GET"
        return self.client.request(method, address, headers=self.headers, data=fields or None)

    def read(self, query, path, **fields):
        answer = self.ask(query, f"experiment/defaultExperimentId/data/{path}", **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def read_means(self, query, tag="train/loss"):
        cards = json.dumps([{"plugin": "scalars", "tag": tag}])
        return self.read(query, "plugin/timeseries/timeSeries", requests=cards)[0]["runToSeries"]

    def read_bands(self, query, run):
        address = f"plugin/custom_scalars/scalars?run={run}&tag=train/loss"
        return self.read(query, address)["tag_to_events"]


def read_curves(api, **query):
    workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]
    params = {"metric": "train/loss", **query}
    answer = api.request("GET", f"/workspaces/{workspace}/runs/curves", params=params)
    return answer.json()["groups"]


def columns(points):
    return [point["step"] for point in points], [point["value"] for point in points]


def test_grouped_page_has_means_and_bands_of_the_api(api, page):
    names = ["optimizer=adam", "optimizer=sgd"]
    assert page.read(BY_OPTIMIZER, "runs") == names
    tags = page.read(BY_OPTIMIZER, "plugin/timeseries/tags")["scalars"]["runTagInfo"]
    assert tags == {name: ["train/loss"] for name in names}
    means = page.read_means(BY_OPTIMIZER)
    for name, curve in zip(names, read_curves(api, group_by=["optimizer"]), strict=True):
        assert columns(means[name]) == (curve["steps"], curve["mean"])
        bands = page.read_bands(BY_OPTIMIZER, name)
        mean, std = np.array(curve["mean"]), np.array(curve["std"])
        expected = {
            "": mean,
            " · mean - std": mean - std,
            " · mean + std": mean + std,
            " · min": curve["min"],
            " · max": curve["max"],
        }
        assert bands.keys() == {f"train/loss{ending}" for ending in expected}
        for ending, values in expected.items():
            points = bands[f"train/loss{ending}"]
            assert [step for _, step, _ in points] == curve["steps"]
            assert [value for _, _, value in points] == list(values)
    layout = page.read(BY_OPTIMIZER, "plugin/custom_scalars/layout")
    charts = [category["chart"][0]["margin"]["series"][0] for category in layout["category"]]
    assert [chart["upper"] for chart in charts] == ["train/loss · mean + std", "train/loss · max"]
    assert page.read(BY_OPTIMIZER, "plugin/hparams/experiment?request={}")["hparamInfos"] == []


def test_grouped_page_samples_after_aggregation(api, client):
    experiment = api.new_experiment()
    steps = np.arange(3000)
    values = np.random.default_rng(5).normal(size=(2, len(steps)))
    for run in range(2):
        api.write(experiment, segment(stream(f"s{run}"), 0, 1, scalars("loss", steps, values[run])))
    query = GroupsQuery(pattern="(s)")
    means = Page(client, [experiment], bearer(api)).read_means(query, "loss")
    shown, read = columns(means["run_pattern=s"])
    assert len(shown) == 1000
    assert read == values.mean(axis=0)[shown].tolist()


def test_grouped_page_shows_new_points_and_new_groups(page, sweep):
    page.read_means(BY_OPTIMIZER)
    sweep[0].write("sgd/0", scalars("train/loss", [LENGTH], [7.0]))
    means = page.read_means(BY_OPTIMIZER)
    assert means["optimizer=sgd"][-1]["value"] == 7.0
    assert page.read_bands(BY_OPTIMIZER, "optimizer=sgd")["train/loss · max"][-1][1:] == [
        LENGTH,
        7.0,
    ]
    late = start({"optimizer": "1"}, wall_time=3e9)
    sweep[1].write("new", late, scalars("train/loss", [0], [1.0], [3e9]))
    names = page.read(BY_OPTIMIZER, "runs")
    assert names == ["optimizer=adam", "optimizer=sgd", 'optimizer="1"']
    bands = page.read_bands(BY_OPTIMIZER, names[-1])
    assert [points[0][2] for points in bands.values()] == [1.0] * 5


def test_grouped_page_of_share_link_shows_its_slice(api, client, page, sweep):
    experiment = sweep[0].experiment_id
    body = {"runs": "adam/.*", "tags": "train/.*"}
    link = api.request("POST", f"/experiments/{experiment}/links", json=body).json()
    reader = Page(client, [experiment], {"Authorization": f"Bearer {link['token']}"})
    everything = GroupsQuery()
    means = reader.read_means(everything)
    (curve,) = read_curves(api, where=f'experiment = "{experiment}" and optimizer = "adam"')
    assert columns(means["all runs"]) == (curve["steps"], curve["mean"])
    assert reader.read(GroupsQuery(("host",)), "runs") == ["host=missing"]
    other = Page(client, page.ids, reader.headers)
    assert other.ask(everything).status_code == 401
    assert other.ask(everything, "data/runs").status_code == 404


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        (GroupsQuery(("optimzer",)), 422, "did you mean optimizer"),
        (GroupsQuery((), "lr <"), 422, "character 5"),
        (GroupsQuery(pattern="("), 422, "not a valid RE2"),
        (GroupsQuery((), "seed > 100"), 422, "No run with a scalar is selected"),
    ],
)
def test_grouped_page_says_what_is_wrong(page, query, status, detail):
    answer = page.ask(query)
    assert answer.status_code == status
    assert detail in answer.text


def test_grouped_page_refuses_other_fields(client, page):
    address = groups_address(page.ids, BY_OPTIMIZER).replace("group=", "by=")
    answer = client.get(address, headers=page.headers)
    assert answer.status_code == 400
    assert "names no groups" in answer.text


@pytest.mark.parametrize(
    "query",
    [
        GroupsQuery(),
        GroupsQuery(("lr/rate", "-seed", "ä~%2F&=")),
        GroupsQuery(("*",), 'loss < 1 and run ~ "a/b"', r"^(.*)/seed"),
    ],
)
def test_groups_in_address_are_read_back(query):
    text = format_groups(query)
    assert "/" not in text
    assert "%" not in text
    assert parse_groups(text) == query


def test_names_of_groups_differ_with_their_values():
    values = [1.0, "1", True, "true", None, "missing", "a, b=1", 'a"', "adam", 0.1, ""]
    names = [format_key(["x"], [value]) for value in values]
    assert len(set(names)) == len(values)
    assert (names[0], names[8], format_key([], [])) == ("x=1", "x=adam", "all runs")
