"""Runs and curves as Parquet, Arrow and CSV, beside what the same routes return as JSON."""

from __future__ import annotations

import io
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.batches import ApiClient, scalars
from support.hparams import HparamsClient, start
from support.servers import new_owner

READERS = {
    "parquet": lambda content: pq.read_table(io.BytesIO(content)),
    "arrow": lambda content: pa.ipc.open_stream(content).read_all(),
}
RATES = [0.1, "auto", True, None]


@pytest.fixture(scope="module")
def api(shared_application, shared_settings):
    """A workspace with four runs of one experiment, of which one diverged."""
    owner = new_owner(shared_settings.database_url.get_secret_value())
    api = ApiClient(shared_application, owner)
    client = HparamsClient(api, api.new_experiment())
    for number, rate in enumerate(RATES):
        hparams = {"seed": number, "mean": number % 2 == 0}
        if rate is not None:
            hparams["lr"] = rate
        last = math.nan if number == 3 else number / 4
        client.write(f"run {number}", start(hparams), scalars("loss", [1, 2], [9.0, last]))
    return api


@pytest.fixture
def ask(api):
    workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]

    def ask(path="", **query):
        answer = api.request("GET", f"/workspaces/{workspace}/runs{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer

    return ask


@pytest.mark.parametrize("name", READERS)
def test_runs_table_has_typed_columns_in_order(ask, name):
    columns = ["run", "seed", "mean", "lr", "loss", "loss.min", "git_commit"]
    content = ask("/table", sort="-run", column=columns, format=name).content
    table = READERS[name](content)
    assert table.to_pydict() == {
        "run": ["run 3", "run 2", "run 1", "run 0"],
        "seed": [3.0, 2.0, 1.0, 0.0],
        "mean": [False, True, False, True],
        "lr": [None, "true", "auto", "0.1"],  # several types: text
        "loss": [pytest.approx(math.nan, nan_ok=True), 0.5, 0.25, 0.0],
        "loss.min": [9.0, 0.5, 0.25, 0.0],
        "git_commit": [None] * 4,
    }


def test_runs_table_as_csv_is_filtered(ask):
    answer = ask("/table", where="seed > 1", column=["run", "lr", "loss"], format="csv")
    assert answer.text.splitlines() == ["run,lr,loss", "run 2,true,0.5", "run 3,,NaN"]
    assert ask("/table", where="seed > 9", column="run", format="csv").text == "run\n"


@pytest.mark.parametrize("name", READERS)
def test_table_of_groups_has_what_json_has(ask, name):
    query = {"group_by": ["lr"], "column": ["loss.min", "mean"], "sort": "-runs"}
    table = READERS[name](ask("/table", **query, format=name).content)
    groups = ask(**query).json()["runs"]
    assert len(groups) == 4
    for group in groups:  # of several types
        group["lr"] = None if group["lr"] is None else str(group["lr"]).lower()
    assert table.to_pylist() == groups


@pytest.mark.parametrize("name", READERS)
def test_curves_table_has_what_json_has(ask, name):
    query = {"metric": "loss", "group_by": ["mean", "lr"], "quantile": 0.9}
    table = READERS[name](ask("/curves/table", **query, format=name).content)
    groups = ask("/curves", **query).json()["groups"]
    expected = [
        {
            "hparam.mean": group["group"]["mean"],  # `mean` is a statistic
            "lr": None if group["group"]["lr"] is None else str(group["group"]["lr"]).lower(),
            "runs": group["runs"],
            "step": step,
            **{
                each: group[each][row]
                for each in ("count", "not_finite", "mean", "std", "stderr", "median", "min", "max")
            },
            "quantile_0.9": group["quantiles"]["0.9"][row],
        }
        for group in groups
        for row, step in enumerate(group["steps"])
    ]
    assert len(expected) == 8
    assert table.to_pylist() == expected


def test_curves_table_of_no_run_has_columns_only(ask):
    table = READERS["parquet"](
        ask("/curves/table", metric="loss", where="seed > 9", group_by="lr").content
    )
    assert table.num_rows == 0
    assert table.column_names[:4] == ["lr", "runs", "step", "count"]


def test_unknown_format_of_runs_is_refused(api):
    workspace = api.request("GET", "/me").json()["workspace"]["workspace_id"]
    answer = api.request("GET", f"/workspaces/{workspace}/runs/table?format=xlsx")
    assert answer.status_code == 422
    assert "'parquet', 'csv' or 'arrow'" in answer.json()["detail"]
