"""The parser of the hparams plugin's content: what it keeps, leaves out, and refuses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2

from tbwire import hparams, hparams_pb2
from tbwire.hparams import (
    DatasetType,
    DeclaredHparam,
    DeclaredMetric,
    ExperimentSummary,
    HparamType,
    Interval,
    MalformedHparams,
    SessionEnd,
    SessionStart,
    Status,
)
from tbwire.tensorboard_pb2 import SummaryMetadata


def content(**fields):
    """The plugin's content, written with TensorBoard's own messages."""
    return plugin_data_pb2.HParamsPluginData(version=0, **fields).SerializeToString()


def start_info(**fields):
    values = fields.pop("hparams", {})
    info = plugin_data_pb2.SessionStartInfo(**fields)
    for name, value in values.items():
        if value is None:
            info.hparams[name].null_value = 0
        elif isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, str):
            info.hparams[name].string_value = value
        elif isinstance(value, list):
            info.hparams[name].list_value.extend(value)
        else:
            info.hparams[name].number_value = value
    return content(session_start_info=info)


def test_parser_session_start_keeps_every_field():
    parsed = hparams.parse_content(
        start_info(
            hparams={"lr": 0.1, "optimizer": "adam", "augment": True, "layers": 3},
            group_name="g",
            model_uri="gs://model",
            monitor_url="https://monitor",
            start_time_secs=12.5,
        )
    )
    values = {"lr": 0.1, "optimizer": "adam", "augment": True, "layers": 3.0}
    assert parsed == SessionStart(values, "g", "gs://model", "https://monitor", 12.5)
    assert parsed.hparams["augment"] is True


def test_parser_values_without_type_are_missing():
    parsed = hparams.parse_content(start_info(hparams={"a": None, "b": [1, 2], "c": math.nan}))
    assert list(parsed.hparams) == ["c"]
    assert math.isnan(parsed.hparams["c"])


def test_parser_last_entry_of_key_is_its_value():
    info = hparams_pb2.SessionStartInfo()
    for key, value in (("a", 1.0), ("b", 1.0), ("b", 2.0), ("a", None)):
        entry = info.hparams.add(key=key).value
        if value is None:
            entry.null_value = 0
        else:
            entry.number_value = value
    data = hparams_pb2.HParamsPluginData(session_start_info=info)
    assert hparams.parse_content(data.SerializeToString()).hparams == {"b": 2.0}


def test_parser_session_end_keeps_status_and_time():
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_FAILURE, end_time_secs=7.0)
    parsed = hparams.parse_content(content(session_end_info=end))
    assert parsed == SessionEnd(Status.STATUS_FAILURE, 7.0)


def test_parser_status_of_later_version_is_unknown():
    end = plugin_data_pb2.SessionEndInfo(status=77)
    assert hparams.parse_content(content(session_end_info=end)).status is Status.STATUS_UNKNOWN


def test_parser_summary_keeps_every_field():
    experiment = api_pb2.Experiment(
        name="n",
        description="d",
        user="u",
        time_created_secs=3.0,
        hparam_infos=[
            api_pb2.HParamInfo(
                name="lr",
                display_name="rate",
                description="of learning",
                type=api_pb2.DATA_TYPE_FLOAT64,
                domain_interval=api_pb2.Interval(min_value=0.1, max_value=1.0),
                differs=True,
            ),
            api_pb2.HParamInfo(name="bare"),
        ],
        metric_infos=[
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(group="eval", tag="loss"),
                display_name="L",
                description="lower is better",
                dataset_type=api_pb2.DATASET_VALIDATION,
            )
        ],
    )
    experiment.hparam_infos.add(name="kind").domain_discrete.extend(["a", True, 2.0, None])
    parsed = hparams.parse_content(content(experiment=experiment))
    float64, discrete = HparamType.DATA_TYPE_FLOAT64, ("a", True, 2.0)
    assert parsed == ExperimentSummary(
        "n",
        "d",
        "u",
        3.0,
        (
            DeclaredHparam("lr", "rate", "of learning", float64, Interval(0.1, 1.0), True),
            DeclaredHparam("bare"),
            DeclaredHparam("kind", domain=discrete),
        ),
        (DeclaredMetric("eval", "loss", "L", "lower is better", DatasetType.DATASET_VALIDATION),),
    )


def test_parser_empty_summary_is_summary_without_columns():
    parsed = hparams.parse_content(content(experiment=api_pb2.Experiment()))
    assert parsed == ExperimentSummary()


def test_parser_content_of_no_known_kind_is_none():
    assert hparams.parse_content(b"") is None
    assert hparams.parse_content(content()) is None


@pytest.mark.parametrize(
    "malformed",
    [b"\xff\xff", b"\x1a\x05ab", b"\x12\x02\x0a\x09", b"\x1a\x04\x12\x02\xff\xfe"],
    ids=["tag", "length", "summary", "not UTF-8"],
)
def test_parser_malformed_content_is_refused(malformed):
    with pytest.raises(MalformedHparams):
        hparams.parse_content(malformed)


def test_parser_deeply_nested_value_is_refused():
    value = b""
    for _ in range(300):  # ListValue of Value: field 6 of Value holds a ListValue
        inner = b"\x0a" + length(value) + value
        value = b"\x32" + length(inner) + inner
    entry = b"\x0a\x01a\x12" + length(value) + value
    info = b"\x0a" + length(entry) + entry
    with pytest.raises(MalformedHparams):
        hparams.parse_content(b"\x1a" + length(info) + info)


def length(data):
    size, encoded = len(data), b""
    while size > 127:
        encoded, size = encoded + bytes([size & 127 | 128]), size >> 7
    return encoded + bytes([size])


def test_parser_reads_content_of_summary_metadata():
    plugin_data = SummaryMetadata.PluginData(
        plugin_name="hparams", content=start_info(hparams={"x": 1})
    )
    metadata = SummaryMetadata(plugin_data=plugin_data).SerializeToString()
    assert hparams.parse_metadata(metadata).hparams == {"x": 1.0}
    with pytest.raises(MalformedHparams):
        hparams.parse_metadata(b"\xff")


@given(st.binary(max_size=60))
def test_parser_any_bytes_parse_or_are_refused(data):
    try:
        hparams.parse_metadata(data)
        hparams.parse_content(data)
    except MalformedHparams:
        pass
