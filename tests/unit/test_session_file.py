"""Hyperparameters that the frameworks' callbacks write beside the event files of a training."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams import metadata

from support.hparams_records import values_of
from tbupload.integrations.training_upload import (
    TrainingUpload,
    write_session_end,
    write_session_start,
)

HPARAMS = {"lr": 0.1, "layers": 2.0, "amp": True, "optimizer": "adam"}


def read(logdir):
    """Return what TensorBoard reads: each tag's content."""
    (path,) = logdir.iterdir()
    events = EventFileLoader(str(path)).Load()
    return {
        value.tag: value.metadata.plugin_data.content
        for event in events
        for value in event.summary.value
    }


def typed(values):
    """Return the values as Python writes them: True equals 1.0."""
    return {name: repr(value) for name, value in values.items()}


def test_session_is_read_by_tensorboard(tmp_path):
    assert write_session_start(str(tmp_path / "run"), HPARAMS)
    assert write_session_end(str(tmp_path / "run"))
    contents = read(tmp_path / "run")
    start = metadata.parse_session_start_info_plugin_data(contents[metadata.SESSION_START_INFO_TAG])
    end = metadata.parse_session_end_info_plugin_data(contents[metadata.SESSION_END_INFO_TAG])
    assert typed(values_of(start)) == typed(HPARAMS)
    assert 0 < start.start_time_secs <= end.end_time_secs
    assert end.status == 1  # STATUS_SUCCESS


def test_values_that_are_no_hyperparameters_are_left_out(tmp_path):
    more = {"none": None, "list": [1], "long": "x" * 10_001, "n" * 10_001: 1, "object": object()}
    assert write_session_start(str(tmp_path), HPARAMS | more)
    start = metadata.parse_session_start_info_plugin_data(
        read(tmp_path)[metadata.SESSION_START_INFO_TAG]
    )
    assert values_of(start) == HPARAMS


def test_directory_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert not write_session_start(str(tmp_path / "file"), HPARAMS)
    assert "hyperparameters" in caplog.text
    assert not write_session_start("gs://bucket/logs", HPARAMS)
    assert not (tmp_path / "gs:").exists()


def test_option_that_follow_does_not_have_is_an_error():
    with pytest.raises(TypeError, match="nmae"):
        TrainingUpload(nmae="a first try")
