"""Encode the sessions of the HParams plugin, as TensorBoard's own writers do.

The plugin keeps all of a session in the summary metadata of two series of its run. The encoding is
that of `tensorboard/plugins/hparams/metadata.py` and `summary_v2.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import NULL_VALUE, Value

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.ingest.batch import SentMetadata, SentSeries
from tbservice.samples import TensorValue
from tbservice.types.series import HparamValue, SessionStatus
from tbwire import hparams_union, tensors
from tbwire.hparams import SESSION_START_TAG
from tbwire.hparams_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tbwire.points import DataClass, TensorPoints
from tbwire.tag_owners import HPARAMS
from tbwire.tensorboard_pb2 import DATA_CLASS_TENSOR, SummaryMetadata

START_FIELDS: Final = ("model_uri", "monitor_url", "group_name", "start_time_secs")

_STEP: Final = 0

_NULL_TENSOR: Final = TensorValue(tensors.FLOAT, (0,), b"")
"""NULL_TENSOR in `metadata.py`: the value of a series with its content in the metadata."""


@dataclass(frozen=True, slots=True)
class SessionFields:
    """Fields to set of a session; hyperparameters that are not named, and None, keep their values.

    So do empty texts, and times of 0: in TensorBoard's messages, these are absent. Times are
    seconds since the epoch.
    """

    hparams: Mapping[str, HparamValue] = field(default_factory=dict)
    group_name: str | None = None
    model_uri: str | None = None
    monitor_url: str | None = None
    start_time_secs: float | None = None
    status: SessionStatus | None = None
    end_time_secs: float | None = None

    @property
    def has_end(self) -> bool:
        """Return whether something is to be set that is logged at the end of a session."""
        return self.status is not None or bool(self.end_time_secs)


def make_series(
    tag: str, content: HParamsPluginData, wall_time: float, *, is_set: bool = False
) -> SentSeries:
    """Return a series of the plugin with its one point, whose value is a placeholder.

    With `is_set`, a start only sets hyperparameters at the wall time: no session began then. Raises
    TooLarge.
    """
    metadata = _wrap(content)
    if is_set and tag == SESSION_START_TAG:
        metadata = hparams_union.as_set(metadata, wall_time)
    points = TensorPoints(np.array([_STEP]), np.array([wall_time]), [_NULL_TENSOR])
    return SentSeries(tag, SentMetadata(HPARAMS, DataClass.TENSOR, _check_size(metadata)), points)


def make_content(tag: str, stored: HParamsPluginData, fields: SessionFields) -> HParamsPluginData:
    """Return a start with the fields only, or the stored end with the fields set."""
    if tag == SESSION_START_TAG:
        return HParamsPluginData(session_start_info=_make_start(fields))
    return HParamsPluginData(session_end_info=_set_end(stored.session_end_info, fields))


def encode_metadata(content: HParamsPluginData) -> bytes:
    """Return summary metadata. Raises TooLarge."""
    return _check_size(_wrap(content))


def _wrap(content: HParamsPluginData) -> bytes:
    metadata = SummaryMetadata(data_class=DATA_CLASS_TENSOR)
    metadata.plugin_data.plugin_name = HPARAMS
    metadata.plugin_data.content = content.SerializeToString()
    return metadata.SerializeToString()


def _check_size(metadata: bytes) -> bytes:
    if len(metadata) > limits.METADATA_BYTES_MAX:
        limit = f"{limits.METADATA_BYTES_MAX} bytes (metadata_bytes_max)"
        raise TooLarge(f"hparams: all of a session have at most {limit}; this has {len(metadata)}")
    return metadata


def parse_metadata(metadata: bytes) -> HParamsPluginData:
    """Return the plugin's content; empty if a client has stored something else there."""
    content = SummaryMetadata.FromString(metadata).plugin_data.content
    try:
        return HParamsPluginData.FromString(content)
    except DecodeError:
        return HParamsPluginData()


def _make_start(fields: SessionFields) -> SessionStartInfo:
    info = SessionStartInfo(
        hparams=[
            SessionStartInfo.Hparam(key=name, value=_make_value(value))
            for name, value in fields.hparams.items()
        ]
    )
    for name in START_FIELDS:
        if value := getattr(fields, name):
            setattr(info, name, value)
    return info


def _make_value(value: HparamValue) -> Value:
    if value is None:
        return Value(null_value=NULL_VALUE)
    if isinstance(value, bool):
        return Value(bool_value=value)
    return Value(string_value=value) if isinstance(value, str) else Value(number_value=value)


def _set_end(stored: SessionEndInfo, fields: SessionFields) -> SessionEndInfo:
    """Return a copy with the fields set; a session that runs again has no end, unless it is set."""
    info = SessionEndInfo(status=stored.status, end_time_secs=stored.end_time_secs)
    if fields.status is not None:
        info.status = fields.status
        if fields.status is SessionStatus.RUNNING:
            info.end_time_secs = 0.0
    if fields.end_time_secs:
        info.end_time_secs = fields.end_time_secs
    return info
