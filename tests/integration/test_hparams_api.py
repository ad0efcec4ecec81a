"""The HParams API answers as the comments of TensorBoard's `plugins/hparams/api.proto` say: complete
answers about one experiment, and what each field of a request selects, sorts and refuses.
"""

from __future__ import annotations

import time

import pytest

from support.batches import scalars
from support.hparams import (
    HparamsClient,
    column,
    end,
    last,
    metric,
    start,
    summary,
    values,
)

LOSS = {"tag": "loss"}
VALIDATION_LOSS = {"group": "validation", "tag": "loss"}


@pytest.fixture(scope="module")
def sweep(shared_api):
    """Five groups: four sessions alone, and g with two; see `write_sweep`."""
    client = HparamsClient(shared_api)
    write_sweep(client)
    return client


def write_sweep(client):
    declared = summary(
        [
            column(
                "lr", (0.0, 1.0), display_name="Learning rate", description="of **Adam**", type=3
            ),
            column("optimizer", ["adam", "sgd"], type=1),
            column("dropout", type=3),
        ],
        [
            metric("loss", display_name="Loss", description="*less* is better", dataset_type=1),
            metric("loss", "validation", dataset_type=2),
        ],
        name="sweep",
        description="A **sweep**",
        user="team-a",
        time_created_secs=1.6e9,
    )
    client.write("schema", declared)
    fields = {"model_uri": "gs://m/1", "monitor_url": "https://m/1", "start_time_secs": 100.0}
    first = {"lr": 0.1, "optimizer": "adam", "layers": 2, "norm": True}
    losses = scalars("loss", [1, 5, 10], [3.0, 2.0, 0.5], [1.7e9, 1.7e9 + 1, 1.7e9 + 2])
    client.write("s1", start(first, **fields), end(end_time=200.0), losses)
    client.write("s1/validation", last("loss", 0.6, 9))
    second = {"lr": 0.2, "optimizer": "sgd", "layers": 3, "norm": False}
    client.write("s2", start(second), end("STATUS_FAILURE"), last("loss", 0.4))
    client.write("s3", start({"lr": 0.3, "optimizer": "adam"}), last("loss", 0.9))
    client.write(
        "s4", start({"lr": 0.4, "optimizer": "sgd"}), last("late", 7.0, wall_time=time.time())
    )
    shared = {"lr": 0.5, "optimizer": "adam"}
    for run, loss, step in (("s5", 0.1, 3), ("s6", 0.3, 4)):
        client.write(run, start(shared, group_name="g"), end(), last("loss", loss, step))


# ---- complete answers


def test_experiment_is_as_declared_and_logged(sweep):
    """Undeclared columns are there, and what is not declared of a column is computed."""
    expected = {
        "name": sweep.experiment_id,
        "description": "A **sweep**",
        "user": "team-a",
        "timeCreatedSecs": 1.6e9,
        "hparamInfos": [
            hparam("layers", "FLOAT64", True, domainInterval={"minValue": 2.0, "maxValue": 3.0}),
            hparam(
                "lr",
                "FLOAT64",
                True,
                displayName="Learning rate",
                description="of **Adam**",
                domainInterval={"minValue": 0.0, "maxValue": 1.0},
            ),
            hparam("norm", "BOOL", True, domainDiscrete=[False, True]),
            hparam("optimizer", "STRING", True, domainDiscrete=["adam", "sgd"]),
            hparam("dropout", "FLOAT64", False),
        ],
        "metricInfos": [
            {
                "name": {"group": "", "tag": "loss"},
                "displayName": "Loss",
                "description": "*less* is better",
                "datasetType": "DATASET_TRAINING",
            },
            {
                "name": VALIDATION_LOSS,
                "displayName": "",
                "description": "",
                "datasetType": "DATASET_VALIDATION",
            },
            {
                "name": {"group": "", "tag": "late"},
                "displayName": "",
                "description": "",
                "datasetType": "DATASET_UNKNOWN",
            },
        ],
    }
    assert sweep.experiment() == expected
    few = sweep.experiment(hparamsLimit=2, includeMetrics=False)
    assert few == expected | {"hparamInfos": expected["hparamInfos"][:2], "metricInfos": []}
    assert sweep.experiment(hparamsLimit=0) == expected


def hparam(name, type_, differs, **fields):
    """Return a column as the API has it."""
    texts = {"name": name, "displayName": "", "description": "", "type": f"DATA_TYPE_{type_}"}
    return texts | {"differs": differs} | fields


def test_group_has_sessions_hparams_and_metrics(sweep):
    """Every field is printed with its default; a session may have metrics of several runs."""
    metric_values = [
        {
            "name": {"group": "", "tag": "loss"},
            "value": 0.5,
            "trainingStep": 10,
            "wallTimeSecs": 1.7e9 + 2,
        },
        {"name": VALIDATION_LOSS, "value": 0.6, "trainingStep": 9, "wallTimeSecs": 1.7e9},
    ]
    session = {
        "name": "s1",
        "startTimeSecs": 100.0,
        "endTimeSecs": 200.0,
        "status": "STATUS_SUCCESS",
        "modelUri": "gs://m/1",
        "metricValues": metric_values,
        "monitorUrl": "https://m/1",
    }
    assert sweep.list(startIndex=1, sliceSize=1) == {
        "sessionGroups": [
            {
                "name": "s1",
                "hparams": {"lr": 0.1, "optimizer": "adam", "layers": 2.0, "norm": True},
                "metricValues": metric_values,
                "sessions": [session],
                "monitorUrl": "https://m/1",
            }
        ],
        "totalSize": 5,
    }
    bare = sweep.sessions()["s3"]
    assert bare == {
        "name": "s3",
        "startTimeSecs": 0.0,
        "endTimeSecs": 0.0,
        "status": "STATUS_UNKNOWN",
        "modelUri": "",
        "metricValues": bare["metricValues"],
        "monitorUrl": "",
    }
    without = sweep.sessions(includeMetrics=False)
    assert all(not each["metricValues"] for each in without.values())


def test_group_of_several_sessions_is_aggregated(sweep):
    group = sweep.groups()["g"]
    assert group["hparams"] == {"lr": 0.5, "optimizer": "adam"}
    assert [(each["name"], values(each)) for each in group["sessions"]] == [
        ("s5", {("", "loss"): 0.1}),
        ("s6", {("", "loss"): 0.3}),
    ]
    assert [len(each["sessions"]) for each in sweep.groups().values()] == [2, 1, 1, 1, 1]
    for aggregation, value, step in (
        ("UNSET", 0.2, 3),
        ("MAX", 0.3, 4),
        ("MEDIAN", 0.1, 3),  # of an even number the lower one
    ):
        fields = {"aggregationType": f"AGGREGATION_{aggregation}", "aggregationMetric": LOSS}
        (loss,) = sweep.groups(**fields)["g"]["metricValues"]
        assert (loss["value"], loss["trainingStep"]) == (value, step), aggregation


def test_metric_evals_are_points_of_series(sweep):
    evals = sweep.ask("metric_evals", sessionName="s1", metricName=LOSS)
    assert evals == [[1.7e9, 1, 3.0], [1.7e9 + 1, 5, 2.0], [1.7e9 + 2, 10, 0.5]]
    evals = sweep.ask("metric_evals", sessionName="s1", metricName=VALIDATION_LOSS)
    assert evals == [[1.7e9, 9, 0.6]]


def test_api_speaks_proto3_json(sweep):
    answer = sweep.post("session_groups", {"sliceSize": 1, "allowed_statuses": [1]})
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["sessionGroups"]) == 1
    assert sweep.post("session_groups", {"noSuchField": 1}).status_code == 400
    assert sweep.ask("session_groups") == {"sessionGroups": [], "totalSize": 0}


# ---- names


def test_metric_evals_name_session_and_metric(sweep):
    for session, name in (("s9", LOSS), ("s1", {"tag": "nothing"}), ("s1/validation", {})):
        assert sweep.refusal("metric_evals", sessionName=session, metricName=name)[0] == 404
    assert sweep.refusal("metric_evals", sessionName="s1") == (422, "metric_name: is required")


def test_metric_is_subdirectory_and_tag_of_any_text(sweep):
    client = HparamsClient(sweep.api)
    odd = 'a "b"/\n\u2028ü=[0]'
    for session in ("base/s", "base/t"):
        client.write(session, start({"x": 1}))
        client.write(f"{session}/{odd}", last(odd, 2.0))
        client.write(f"{session}/sub/dir", last("loss", 1.0))
    assert client.metrics() == [(odd, odd), ("sub/dir", "loss")]
    assert values(client.sessions()["base/s"]) == {(odd, odd): 2.0, ("sub/dir", "loss"): 1.0}
    odd_metric = {"group": odd, "tag": odd}
    assert client.ask("metric_evals", sessionName="base/t", metricName=odd_metric)[0][2] == 2.0


# ---- what selects and sorts groups

ALL = ["g", "s1", "s2", "s3", "s4"]
FALLING_LR = {"hparam": "lr", "order": "ORDER_DESC"}
LAYERS = {"hparam": "layers"}
OPTIMIZER = {"hparam": "optimizer"}
HALF = {"minValue": 0.5, "maxValue": 0.5}
SELECTED = [
    # A column without an order or a filter changes nothing.
    ([{"hparam": "lr"}, LAYERS | {"missingValuesFirst": True}, {"metric": LOSS}], ALL),
    ([{"metric": LOSS, "filterInterval": HALF, "excludeMissingValues": True}], ["s1"]),
    ([LAYERS | {"filterInterval": {"minValue": 3, "maxValue": 9}}], ["g", "s2", "s3", "s4"]),
    ([{"hparam": "norm", "filterDiscrete": [True]}], ["g", "s1", "s3", "s4"]),
    ([OPTIMIZER | {"filterRegexp": "g"}, LAYERS | {"excludeMissingValues": True}], ["s2"]),
    ([OPTIMIZER | {"order": "ORDER_DESC"}, FALLING_LR], ["s4", "s2", "g", "s3", "s1"]),
    # Of equal values the name decides, in either order.
    ([OPTIMIZER | {"order": "ORDER_DESC", "filterDiscrete": ["adam"]}], ["g", "s1", "s3"]),
    (
        [LAYERS | {"order": "ORDER_DESC", "missingValuesFirst": True}],
        ["g", "s3", "s4", "s2", "s1"],
    ),
    (
        [
            {"metric": LOSS, "order": "ORDER_ASC", "filterInterval": {"maxValue": 0.5}},
            OPTIMIZER | {"filterDiscrete": ["adam"]},
            {"metric": LOSS, "excludeMissingValues": True},
        ],
        ["g", "s1"],
    ),
]
"""One case of each filter and order: unit/test_hparams_selection.py has the others."""


def test_columns_filter_and_sort_groups(sweep):
    for columns, names in SELECTED:
        assert sweep.names(*columns) == names, columns


def test_slice_is_of_filtered_and_sorted_list(sweep):
    falling = FALLING_LR | {"filterInterval": {"maxValue": 0.4}}
    for columns, index, size, names, total in (
        ([], 1, 2, ["s1", "s2"], 5),
        ([], 2**31 - 1, 9, [], 5),
        ([falling], 3, 9, ["s1"], 4),
    ):
        page = sweep.list(*columns, startIndex=index, sliceSize=size)
        assert [group["name"] for group in page["sessionGroups"]] == names
        assert page["totalSize"] == total
