"""Hyperparameters of files by real writers, from `tbupload` to the API, the page and exports: every
value, type, domain, status, group, time and metric, written down here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from support.batches import ApiClient
from support.hparams import HparamsClient, HparamsPage

FILES = Path(__file__).parent.parent / "data"
FLOAT, STRING, BOOL = "float64", "string", "bool"
ANY = (float("-inf"), float("inf"))


class Expected(NamedTuple):
    """Of a log directory: columns by name as (type, domain), an interval being a pair; metrics as
    "group/tag"; rows as exported.
    """

    columns: dict
    metrics: list
    rows: list


def row(run, group="", status=None, start=None, end=None, /, **values):
    """A session as it is exported; names of values have "hparams." or "metrics." before them."""
    fields = {"run": run, "group": group, "status": status, "start_time": start, "end_time": end}
    return {name: value for name, value in (fields | values).items() if value is not None}


def hparams(**values):
    return {f"hparams.{name}": value for name, value in values.items()}


def metrics(values):
    return {f"metrics.{name}": value for name, value in values.items()}


WRITERS = {
    "tensorboard_plugins/hparams": Expected(  # tf.summary with `hparams.api`; the API before it
        {
            "bias": (BOOL, [False, True]),
            "layers": (FLOAT, (1.0, 4.0)),
            "learning_rate": (FLOAT, (0.001, 0.1)),
            "optimizer": (STRING, ["adam", "sgd"]),
        },
        ["validation/accuracy", "accuracy"],
        [
            row(
                "session 0",
                "trial-0",
                None,
                1_700_000_000.5,
                **hparams(learning_rate=0.01, optimizer="adam", layers=1.0, bias=False),
                **metrics({"accuracy": 0.800000011920929}),
            ),
            row(
                "session 1",
                "trial-1",
                None,
                1_700_000_000.5,
                **hparams(learning_rate=0.02, optimizer="sgd", layers=2.0, bias=True),
                **metrics({"accuracy": 0.8999999761581421}),
            ),
            row(
                "session old",
                "",
                "success",
                1_700_000_000.0,
                1_700_000_060.0,
                **hparams(learning_rate=0.03),
                **metrics({"accuracy": 0.699999988079071}),
            ),
        ],
    ),
    "pytorch/hparams": Expected(  # with domains and names of sessions
        {
            "bias": (FLOAT, [1.0, 0.0]),
            "optimizer": (STRING, ["adam", "sgd"]),
            "rate": (FLOAT, (0.1, 0.2)),
            "layers": (FLOAT, (2.0, 2.0)),
        },
        ["accuracy"],
        [
            row(
                "session 0",
                "",
                "success",
                **hparams(rate=0.1, optimizer="adam", bias=0.0, layers=2.0),
                **metrics({"accuracy": 0.800000011920929}),
            ),
            row(
                "session 1",
                "",
                "success",
                **hparams(rate=0.2, optimizer="sgd", bias=1.0, layers=2.0),
                **metrics({"accuracy": 0.8999999761581421}),
            ),
        ],
    ),
    "hparams_calls/pytorch": Expected(  # without both; the run is named by the time
        {
            "amp": (FLOAT, (1.0, 1.0)),
            "empty": (STRING, [""]),
            "epochs": (FLOAT, (3.0, 3.0)),
            "large": (FLOAT, (2.0**53, 2.0**53)),
            "optimizer": (STRING, ["adam"]),
            "rate": (FLOAT, (0.001, 0.001)),
            "ratio": (FLOAT, None),
            "tensor": (FLOAT, (0.5, 0.5)),
            "ü/%s": (STRING, ["☃"]),
        },
        ["hparam/accuracy", "hparam/loss"],
        [
            row(
                "1700000000.25",
                "",
                "success",
                **hparams(
                    rate=0.001,
                    epochs=3.0,
                    large=2.0**53,
                    optimizer="adam",
                    empty="",
                    amp=1.0,
                    ratio="NaN",
                    tensor=0.5,
                ),
                **hparams(**{"ü/%s": "☃"}),
                **metrics({"hparam/accuracy": 0.5, "hparam/loss": 0.25}),
            )
        ],
    ),
    "hparams_calls/tensorboardx": Expected(  # leaves out None and numpy's numbers itself
        {
            "amp": (BOOL, [True]),
            "empty": (STRING, [""]),
            "epochs": (FLOAT, (3.0, 3.0)),
            "large": (FLOAT, (2.0**53, 2.0**53)),
            "number": (STRING, None),
            "optimizer": (STRING, ["adam"]),
            "rate": (FLOAT, (0.001, 0.001)),
            "ratio": (FLOAT, None),
            "whole": (STRING, None),
            "ü/%s": (STRING, ["☃"]),
        },
        ["hparam/accuracy", "hparam/loss"],
        [
            row(
                "1700000000.25",
                "",
                "success",
                **hparams(
                    rate=0.001,
                    epochs=3.0,
                    large=2.0**53,
                    optimizer="adam",
                    empty="",
                    amp=True,
                    ratio="NaN",
                ),
                **hparams(**{"ü/%s": "☃"}),
                **metrics({"hparam/accuracy": 0.5, "hparam/loss": 0.25}),
            )
        ],
    ),
    "keras_hparams": Expected(  # Keras' callback; metrics are in runs below the session
        {
            "bias": (BOOL, [False, True]),
            "optimizer": (STRING, ["adam", "sgd"]),
            "units": (FLOAT, [1.0, 2.0]),
            "learning_rate": (FLOAT, (0.01, 0.5)),
        },
        [
            "validation/epoch_loss",
            "train/epoch_loss",
            "train/epoch_learning_rate",
            "validation/evaluation_loss_vs_iterations",
        ],
        [
            row(
                "interrupted",
                "x",
                None,
                1795350027.8383448,
                **hparams(learning_rate=0.25, units=2.0, optimizer="adam", bias=True),
                **metrics(
                    {
                        "validation/epoch_loss": 0.40664052963256836,
                        "train/epoch_loss": 0.508787989616394,
                        "train/epoch_learning_rate": 0.0010000000474974513,
                        "validation/evaluation_loss_vs_iterations": 0.40664052963256836,
                    }
                ),
            ),
            row(
                "named",
                "first trial",
                "success",
                1795350026.2315667,
                1795350026.8853245,
                **hparams(learning_rate=0.25, units=2.0, optimizer="sgd", bias=True),
                **metrics(
                    {
                        "validation/epoch_loss": 0.312261700630188,
                        "train/epoch_loss": 0.44736236333847046,
                        "train/epoch_learning_rate": 0.009999999776482582,
                        "validation/evaluation_loss_vs_iterations": 0.312261700630188,
                    }
                ),
            ),
            row(
                "unnamed",
                "905967fc182c93a97a958202bffd2d45f2d4022c6810dd5843882d05ddd0a9ce",
                "success",
                1795350027.0777462,
                1795350027.7064345,
                **hparams(learning_rate=0.25, units=1.0, optimizer="sgd", bias=False),
                **metrics(
                    {
                        "validation/epoch_loss": 0.8343126773834229,
                        "train/epoch_loss": 0.9625540375709534,
                        "train/epoch_learning_rate": 0.009999999776482582,
                        "validation/evaluation_loss_vs_iterations": 0.8343126773834229,
                    }
                ),
            ),
        ],
    ),
    "guild": Expected(  # Guild's writer, whose wall times are all 0
        {
            "after": (STRING, ["end", "fail", "wait"]),
            "bias": (BOOL, [False, True]),
            "layers": (FLOAT, ANY),
            "optimizer": (STRING, ["adam", "rmsprop", "sgd"]),
            "rate": (FLOAT, ANY),
            "sourcecode": (STRING, ["128cc588"]),
        },
        ["loss", "time"],
        [
            row(
                "completed/.guild",
                "08884ea4 train.py",
                "success",
                1795350134.0539875,
                **hparams(rate=0.5, optimizer="adam", layers=3.0, bias=True, after="end"),
                **hparams(sourcecode="128cc588"),
                **metrics({"loss": 0.1666666716337204, "time": 0.44691500067710876}),
            ),
            row(
                "error/.guild",
                "ce46ccb8 train.py",
                "failure",
                1795350133.9387259,
                **hparams(rate=0.1, optimizer="sgd", layers=2.0, bias=False, after="fail"),
                **hparams(sourcecode="128cc588"),
                **metrics({"loss": 0.03333333507180214, "time": 0.8107489943504333}),
            ),
            row(
                "running/.guild",
                "6750789a train.py",
                "running",
                1795350133.8160479,
                **hparams(rate=0.1, optimizer="rmsprop", layers=2.0, bias=True, after="wait"),
                **hparams(sourcecode="128cc588"),
                **metrics({"loss": 0.03333333507180214}),
            ),
        ],
    ),
}


@pytest.fixture(params=WRITERS)
def uploaded(request, uploader, reader):
    """A client of the uploaded files, and what is expected of them."""
    ended = uploader.run("--logdir", FILES / request.param, "--one-shot")
    assert ended.code == 0, ended.err
    api = ApiClient(reader.http, uploader.token)
    return api, ended.experiment_id, WRITERS[request.param]


def read_columns(client):
    """The columns as `Expected` has them."""
    columns = {}
    for info in client.experiment()["hparamInfos"]:
        domain = info.get("domainDiscrete")
        if "domainInterval" in info:
            bounds = info["domainInterval"]
            domain = (float(bounds["minValue"]), float(bounds["maxValue"]))
        columns[info["name"]] = (info["type"].removeprefix("DATA_TYPE_").lower(), domain)
    return columns


def read_rows(client):
    """The sessions as exports have them, each of which is a group."""
    rows = []
    for group in client.list()["sessionGroups"]:
        (session,) = group["sessions"]
        assert group["metricValues"] == session["metricValues"]
        status = session["status"].removeprefix("STATUS_").lower()
        names = ["/".join(filter(None, each["name"].values())) for each in group["metricValues"]]
        values = [each["value"] for each in group["metricValues"]]
        made = row(
            session["name"],
            "" if group["name"] == session["name"] else group["name"],
            None if status == "unknown" else status,
            session["startTimeSecs"] or None,
            session["endTimeSecs"] or None,
            **hparams(**group["hparams"]),
            **metrics(dict(zip(names, values, strict=True))),
        )
        rows.append(made)
    return sorted(rows, key=lambda made: made["run"])


def test_columns_of_real_writer_have_types_and_domains(uploaded):
    api, experiment_id, expected = uploaded
    for client in (HparamsClient(api, experiment_id), HparamsPage(api, experiment_id)):
        assert read_columns(client) == expected.columns
        assert list(read_columns(client)) == list(expected.columns)
        assert ["/".join(filter(None, name)) for name in client.metrics()] == expected.metrics


def test_sessions_of_real_writer_are_complete(uploaded, uploader, tmp_path):
    api, experiment_id, expected = uploaded
    assert read_rows(HparamsClient(api, experiment_id)) == expected.rows
    finite = [
        {name: value for name, value in each.items() if value != "NaN"} for each in expected.rows
    ]
    assert read_rows(HparamsPage(api, experiment_id)) == finite
    path = tmp_path / "sessions.json"
    ended = uploader.run("export", "--experiment", experiment_id, "--hparams", path)
    assert ended.code == 0, ended.err
    assert json.loads(path.read_bytes()) == expected.rows


def test_descriptions_of_real_writer_are_kept(uploader, reader):
    ended = uploader.run("--logdir", FILES / "keras_hparams", "--one-shot")
    client = HparamsClient(ApiClient(reader.http, uploader.token), ended.experiment_id)
    rate = client.columns()["learning_rate"]
    assert (rate["displayName"], rate["description"]) == ("Learning rate", "of *SGD*")
    experiment = client.experiment()
    assert experiment["timeCreatedSecs"] == 1_700_000_000
    shown = [(info["displayName"], info["datasetType"]) for info in experiment["metricInfos"]]
    assert shown[:2] == [
        ("loss (val.)", "DATASET_VALIDATION"),
        ("loss (train)", "DATASET_TRAINING"),
    ]
