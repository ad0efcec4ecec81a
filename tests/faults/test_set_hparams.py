"""Every statement by which hyperparameters are set fails: they are set once, or again."""

from __future__ import annotations

import base64
import itertools
import json

import pytest

from support import event_files
from tbwire.hparams_pb2 import HParamsPluginData

START = "_hparams_/session_start_info"
SOME_STATEMENTS = {"before": (1, 5), "after": (3, 8)}
"""Statements of one request, of its ten or so, that fail unless all do."""


@pytest.fixture
def arguments(tmp_path):
    """Return the arguments of `tbupload`: a log directory of one run, and its hyperparameters."""
    path = tmp_path / "logdir" / "run" / "events.out.tfevents.1.host"
    event_files.write_records(path, [event_files.scalar_event("loss", 0, 1.0)])
    hparams = tmp_path / "hparams.json"
    hparams.write_text(json.dumps({"run": {"lr": 0.5}}))
    return path.parent.parent, "--hparams", hparams


def upload_with_fault(world, arguments, fault, at):
    """One upload in which statement `at` after the batch's version fails; tells whether it did."""
    tenant = world.tenant()
    world.disarm()
    seen = itertools.count(1)
    has_batch = []

    def choose(_number, text, _time):
        if has_batch:
            return fault if next(seen) == at else ""
        if text == "COMMIT" and any("time_series" in each for each in world.sql.statements):
            has_batch.append(True)
        return ""

    world.sql.arm(choose)
    ended = tenant.upload(*arguments)
    hits = world.sql.hits
    assert ended.code == 0, ended.err
    stored = tenant.stored(ended.experiment_id)
    series = stored["tensors"]["run"][START]
    content = base64.b64decode(series["summary_metadata"]["content"])
    (hparam,) = HParamsPluginData.FromString(content).session_start_info.hparams
    assert (hparam.key, hparam.value.number_value, series["count"]) == ("lr", 0.5, 1)
    assert stored["scalars"]["run"]["loss"]["count"] == 1
    return hits


@pytest.mark.parametrize("fault", ["before", "after"])
def test_each_statement_of_setting_hparams_fails(world, arguments, fault, is_everything_tried):
    for at in itertools.count(1) if is_everything_tried else SOME_STATEMENTS[fault]:
        if not upload_with_fault(world, arguments, fault, at):
            break
    assert at >= max(SOME_STATEMENTS[fault])
