"""`PUT …/runs/{run}/hparams`: what every reader sees of it, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.hparams.summary_v2 import hparams_pb

from support.batches import metadata as summary_metadata
from support.batches import scalars, segment, stream, texts
from tbservice import limits
from tbwire import wire_pb2

START, END = metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG
NULL_TENSOR = wire_pb2.Tensor(dtype=1, shape=[0])


@pytest.fixture
def put(api, experiment):
    """Sets hyperparameters of a run, named in the query; answers the response."""

    def put(fields, run="train", **query):
        path = f"/experiments/{experiment}/runs/hparams"
        return api.request("PUT", path, params={"run": run, **query}, json=fields)

    return put


def changed(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["changed"]


def contents(api, experiment, run="train"):
    """The content of each series of the plugin, by tag, as the data API has it."""
    series = api.get(experiment, "tensors", plugin="hparams").get(run, {})
    return {
        tag: base64.b64decode(listed["summary_metadata"]["content"])
        for tag, listed in series.items()
    }


def start_info(api, experiment, run="train"):
    """The start as TensorBoard's message has it, which has no wall times of values."""
    content = contents(api, experiment, run)[START]
    info = metadata.parse_session_start_info_plugin_data(content)
    info.DiscardUnknownFields()
    return info


def end_info(api, experiment):
    content = contents(api, experiment, "train")[END]
    return metadata.parse_session_end_info_plugin_data(content)


def hparams(api, experiment, run="train"):
    """{name: value}, None for null."""
    values = start_info(api, experiment, run).hparams
    return {
        name: None if value.HasField("null_value") else getattr(value, value.WhichOneof("kind"))
        for name, value in values.items()
    }


def logged(values, wall_time=1.7e9, **fields):
    """The series that a training script's session start becomes."""
    info = plugin_data_pb2.SessionStartInfo(**fields)
    for name, value in values.items():
        info.hparams[name].number_value = value
    content = plugin_data_pb2.HParamsPluginData(session_start_info=info).SerializeToString()
    series = texts(START, [0], [b""], [wall_time])
    series.summary_metadata = summary_metadata("hparams", 2, content=content)
    series.tensors.tensors[0].CopyFrom(NULL_TENSOR)
    return series


def version(api, experiment):
    return api.request("GET", f"/experiments/{experiment}/tensors").headers["ETag"]


def test_hparams_are_stored_as_tensorboard_logs_them(api, experiment, put):
    values = {"lr": 0.5, "layers": 3, "optimizer": "adam", "amp": True, "ü/ \0": "x"}
    assert changed(put({"hparams": values, "group_name": "g", "start_time_secs": 7.5}))
    expected = hparams_pb(values, trial_id="g", start_time_secs=7.5).value[0]
    series = api.get(experiment, "tensors")["train"][START]
    content = expected.metadata.plugin_data.content
    assert series["plugin"] == "hparams"
    assert start_info(api, experiment) == (metadata.parse_session_start_info_plugin_data(content))
    sent = summary_metadata("hparams", 2, content=contents(api, experiment)[START])
    (digest,) = api.get(experiment, "digests")["series"]
    assert digest["metadata_sha256"] == hashlib.sha256(sent).hexdigest()
    points = api.get(experiment, "tensors/data")["train"][START]
    assert points["steps"] == [0]
    assert points["values"] == [{"dtype": "float32", "shape": [0], "data": []}]
    assert time.time() - 60 < points["wall_times"][0] <= time.time()
    assert api.get(experiment, "runs")["runs"] == [
        {"run": "train", "start_time": points["wall_times"][0]}
    ]


def test_hparams_null_nan_and_infinities(api, experiment, put):
    values = {"none": None, "nan": "NaN", "more": "Infinity", "less": "-Infinity", "text": "nan"}
    assert changed(put({"hparams": values}))
    stored = hparams(api, experiment)
    assert math.isnan(stored.pop("nan"))
    assert stored == {"none": None, "more": math.inf, "less": -math.inf, "text": "nan"}
    assert not changed(put({"hparams": values}))


def test_hparams_put_again_changes_nothing(api, experiment, put):
    fields = {"hparams": {"lr": 1, "b": "x"}, "status": "success", "end_time_secs": 9}
    assert changed(put(fields))
    before = version(api, experiment), api.get(experiment, "tensors/data")
    cursor = api.get(experiment, "tensors/new")["cursor"]
    assert not changed(put(fields))
    assert not changed(put({"hparams": {"lr": 1.0}}))
    assert not changed(put({}))
    assert (version(api, experiment), api.get(experiment, "tensors/data")) == before
    assert api.get(experiment, "tensors/new", since=cursor)["points"] == {}


def test_hparams_change_reaches_change_feed(api, experiment, put):
    put({"hparams": {"lr": 1}})
    before = version(api, experiment)
    cursor = api.get(experiment, "tensors/new")["cursor"]
    assert changed(put({"hparams": {"lr": 2}}))
    assert version(api, experiment) != before
    assert START in api.get(experiment, "tensors/new", since=cursor)["points"]["train"]


def test_hparams_of_several_requests_are_united(api, experiment, put):
    put({"hparams": {"lr": 1, "a": 1}, "group_name": "g", "model_uri": "m"})
    assert changed(put({"hparams": {"lr": 2, "b": True}, "monitor_url": "u"}))
    assert changed(put({"hparams": {"a": None}, "start_time_secs": 3, "group_name": None}))
    assert hparams(api, experiment) == {"lr": 2, "a": None, "b": True}
    info = start_info(api, experiment)
    assert (info.group_name, info.model_uri, info.monitor_url) == ("g", "m", "u")
    assert info.start_time_secs == 3
    assert not changed(put({"group_name": "", "start_time_secs": 0, "model_uri": "m"}))


@pytest.mark.parametrize("wall_time", [1.0, 9e9], ids=["past", "future"])
def test_hparams_replace_logged_ones_of_any_time(api, experiment, put, wall_time):
    sent = logged({"lr": 1, "only logged": 2}, wall_time, group_name="logged")
    api.write(experiment, segment(stream(), 0, 9, sent, scalars("loss", [1])))
    assert changed(put({"hparams": {"lr": 3}}))
    assert hparams(api, experiment) == {"lr": 3, "only logged": 2}
    assert start_info(api, experiment).group_name == "logged"
    assert not changed(put({"hparams": {"lr": 3}}))


def test_hparams_have_time_of_request(api, experiment, put):
    """Records that a script logged before and sends late do not replace them; later records do."""
    assert changed(put({"hparams": {"lr": 3}}))
    assert changed(put({"hparams": {"b": 3}}))
    for number, (wall_time, expected) in enumerate(((1.0, 3), (time.time() + 60, 9))):
        sent = logged({"lr": 9, f"only {number}": 1}, wall_time)
        api.write(experiment, segment(stream(file_name=str(number)), 0, 9, sent))
        assert hparams(api, experiment)["lr"] == expected
    assert hparams(api, experiment) == {"lr": 9, "b": 3, "only 0": 1, "only 1": 1}


def test_hparams_rubbish_of_plugin_is_replaced(api, experiment, put):
    series = logged({})
    series.summary_metadata = summary_metadata("hparams", 2, content=b"\xff", description="d")
    api.write(experiment, segment(stream(), 0, 9, series))
    assert changed(put({"hparams": {"lr": 3}}))
    assert hparams(api, experiment) == {"lr": 3}


def test_hparams_status_and_end(api, experiment, put):
    put({"status": "running"})
    assert contents(api, experiment).keys() == {START, END}
    assert end_info(api, experiment).status == api_pb2.STATUS_RUNNING
    put({"status": "failure", "end_time_secs": 5.5})
    put({"hparams": {"lr": 1}})
    info = end_info(api, experiment)
    assert (info.status, info.end_time_secs) == (api_pb2.STATUS_FAILURE, 5.5)
    put({"status": "success"})
    info = end_info(api, experiment)
    assert (info.status, info.end_time_secs) == (api_pb2.STATUS_SUCCESS, 5.5)
    put({"status": "running"})
    info = end_info(api, experiment)
    assert (info.status, info.end_time_secs) == (api_pb2.STATUS_RUNNING, 0)
    put({"end_time_secs": 7})
    put({"status": "unknown"})
    info = end_info(api, experiment)
    assert (info.status, info.end_time_secs) == (api_pb2.STATUS_UNKNOWN, 7)
    assert hparams(api, experiment) == {"lr": 1}


def test_hparams_null_fields_keep_what_there_is(api, experiment, put):
    fields = {"hparams": {"lr": 1}, "group_name": "g", "status": "success", "end_time_secs": 9}
    assert changed(put(fields))
    assert not changed(put(dict.fromkeys([*fields, "model_uri", "start_time_secs"])))
    assert hparams(api, experiment) == {"lr": 1}


def test_hparams_if_absent_keeps_what_there_is(api, experiment, put):
    api.write(experiment, segment(stream(), 0, 9, logged({"lr": 1})))
    before = version(api, experiment)
    assert not changed(put({"hparams": {"a": 1}, "status": "success"}, if_absent=True))
    assert version(api, experiment) == before
    assert contents(api, experiment).keys() == {START}
    assert hparams(api, experiment) == {"lr": 1}
    assert changed(put({"hparams": {"a": 1}, "status": "success"}, "new", if_absent=True))
    assert not changed(put({"hparams": {"a": 2}}, "new", if_absent=True))
    assert hparams(api, experiment, "new") == {"a": 1}


RUNS = (".", "", "a/b", "a/../b", "../..", "hparams", "a b/ü?#%&=+", "\x01\n\x7f", "x" * 10_000)


def test_hparams_of_any_name_of_run(api, experiment, put):
    for run in RUNS:
        answer = put({"hparams": {"lr": 1}}, run)
        assert answer.json() == {"run": run, "changed": True}
    assert {run["run"] for run in api.get(experiment, "runs")["runs"]} == set(RUNS)


def test_hparams_of_run_in_path(api, experiment):
    names = {"train": "train", "a/b/c": "a/b/c", "hparams": "hparams"}
    for in_path, run in {**names, "a%2Fb": "a/b", "%C3%BC%20": "ü ", "%3F%23": "?#"}.items():
        path = f"/experiments/{experiment}/runs/{in_path}/hparams"
        assert changed(api.request("PUT", path, json={"hparams": {"lr": 1}}))
        assert hparams(api, experiment, run) == {"lr": 1}


def test_hparams_of_impossible_name_of_run(api, experiment):
    path = f"/experiments/{experiment}/runs/hparams"
    for query, status in (({"run": "x" * 10_001}, 413), ({"run": "a\0b"}, 422), ({}, 422)):
        answer = api.request("PUT", path, params=query, json={"hparams": {"lr": 1}})
        assert (answer.status_code, "run" in answer.json()["detail"]) == (status, True)
    assert api.get(experiment, "runs")["runs"] == []


BAD = [
    ('{"hparams": {"lr": [1]}}', 422, "body.hparams.lr: "),
    ('{"hparams": {"lr": {"a": 1}}}', 422, "body.hparams.lr: "),
    ('{"hparams": {"lr": NaN}}', 422, "body.hparams.lr: "),
    ('{"hparams": {"lr": 1e999}}', 422, '"Infinity"'),
    ('{"hparams": {"lr": 1%s}}' % ("0" * 400), 422, "body.hparams.lr: "),
    ('{"hparams": {"lr": 1%s}}' % ("0" * 9_000), 400, ""),
    ('{"hparams": {"\\ud800": 1}}', 422, ""),
    ('{"hparams": {"a": "\\udfff"}}', 422, ""),
    ('{"hparams": [1]}', 422, "body.hparams"),
    ('{"hparams": {"%s": 1}}' % ("x" * 10_001), 413, "name_chars_max"),
    (json.dumps({"hparams": dict.fromkeys(map(str, range(10_001)), 1)}), 413, "10001"),
    (json.dumps({"hparams": {str(key): [] for key in range(10_001)}}), 413, "10001"),
    (json.dumps({"hparams": {"a": "x" * (1 << 20)}}), 413, "json_body_bytes_max"),
    ('{"group_name": 1}', 422, "body.group_name"),
    (json.dumps({"model_uri": "x" * 10_001}), 422, "body.model_uri"),
    ('{"start_time_secs": "7"}', 422, "body.start_time_secs"),
    ('{"start_time_secs": NaN}', 422, "body.start_time_secs"),
    ('{"end_time_secs": -1}', 422, "body.end_time_secs"),
    ('{"end_time_secs": 1700000000000}', 422, "body.end_time_secs"),
    ('{"status": "done"}', 422, "body.status"),
    ('{"lr": 1}', 422, "unknown field 'lr'"),
    ("[]", 422, "body"),
    ("{", 400, "not JSON"),
]


def test_hparams_bad_body_is_refused(api, experiment):
    path = f"/experiments/{experiment}/runs/hparams?run=train"
    headers = {"Content-Type": "application/json"}
    for body, status, detail in BAD:
        answer = api.request("PUT", path, content=body, headers=headers)
        assert answer.status_code == status, (body[:60], answer.text)
        assert detail in answer.json()["detail"]
        assert len(answer.text) < 2_000
    assert api.get(experiment, "runs")["runs"] == []


def test_hparams_of_session_have_limit_in_number(api, experiment, put):
    count = limits.SESSION_HPARAMS_ITEMS_MAX
    assert changed(put({"hparams": {str(index): index for index in range(count)}}))
    answer = put({"hparams": {"one more": 1}})
    assert answer.status_code == 413
    assert "session_hparams_items_max" in answer.json()["detail"]
    assert changed(put({"hparams": {"7": 8}, "status": "success"}))
    assert len(hparams(api, experiment)) == count


def test_hparams_of_session_have_limit_in_bytes(put):
    answers = [put({"hparams": {f"{number}": "x" * 1_000_000}}) for number in range(6)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 413, 413]
    assert "metadata_bytes_max" in answers[-1].json()["detail"]


@pytest.mark.parametrize("tag", [START, END])
def test_hparams_tag_of_other_plugin_is_conflict(api, experiment, put, tag):
    api.write(experiment, segment(stream(), 0, 9, scalars(tag, [1])))
    answer = put({"hparams": {"lr": 1}, "status": "success"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert tag in answer.json()["detail"]
    assert api.get(experiment, "names") == {"train": [tag]}


def test_hparams_of_concurrent_requests_and_batches(api, experiment, put):
    """Every request's own hyperparameter is kept, and every point."""
    threads_count, rounds = 4, 10

    def set_some(thread):
        for number in range(rounds):
            answer = put({"hparams": {f"{thread}.{number}": number, "last": thread}})
            assert answer.status_code == 200, answer.text

    def upload():
        for number in range(rounds):
            series = [scalars("loss", range(10 * number, 10 * number + 10))]
            api.write(experiment, segment(stream(), number, number + 1, *series))

    with ThreadPoolExecutor(threads_count + 1) as threads:
        uploading = threads.submit(upload)
        assert [*threads.map(set_some, range(threads_count))] == [None] * threads_count
    uploading.result()
    names = {f"{thread}.{number}" for thread in range(threads_count) for number in range(rounds)}
    assert hparams(api, experiment).keys() == names | {"last"}
    assert api.get(experiment, "scalars")["train"]["loss"]["count"] == 10 * rounds


def test_hparams_meet_batch_that_logs_the_same_run(api, experiment, put):
    """Whichever comes first, both are stored, and nothing hangs."""
    for number in range(10):
        run = f"run{number}"
        series = [logged({"logged": 1}, 1.0), scalars("loss", [1])]
        with ThreadPoolExecutor(1) as threads:
            sent = threads.submit(api.write, experiment, segment(stream(run), 0, 9, *series))
            assert changed(put({"hparams": {"set": 1}}, run))
        sent.result()
        assert "set" in hparams(api, experiment, run)
        assert api.get(experiment, "scalars", run=run)[run]["loss"]["count"] == 1


def test_hparams_of_deleted_run_can_be_set_again(api, experiment, put):
    put({"hparams": {"lr": 1, "a": 1}})
    api.request("DELETE", f"/experiments/{experiment}/runs?run=train").raise_for_status()
    refused = put({"hparams": {"lr": 1}})
    assert (refused.status_code, refused.json()["code"]) == (409, "run_deleted")
    api.request("DELETE", f"/experiments/{experiment}/runs/deleted?run=train").raise_for_status()
    assert changed(put({"hparams": {"lr": 1}}))
    assert hparams(api, experiment) == {"lr": 1}
