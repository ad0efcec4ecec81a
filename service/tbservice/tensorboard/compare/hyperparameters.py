"""HParams of several experiments: session groups are told apart by the experiment's name, and no schema is another's.

All of it is in the summary metadata of a run's series. The stock code takes two groups of one name for one group, and
the first schema it finds for everybody's; without any it makes one of all the sessions.
"""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.message import DecodeError
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from tbservice.types import Series
from tbwire.tensorboard_pb2 import SummaryMetadata


def is_schema(series: Series) -> bool:
    """Whether the series declares an experiment's own columns."""
    return (series.plugin, series.tag) == (metadata.PLUGIN_NAME, metadata.EXPERIMENT_TAG)


def kept_apart(series: Series, name: str) -> Series:
    """The series with its session group's name, where it has one, beginning with the experiment's `name`.

    A session without a group is one of its own, named like its run, which begins with that name already.
    """
    if (series.plugin, series.tag) != (metadata.PLUGIN_NAME, metadata.SESSION_START_INFO_TAG):
        return series
    about = SummaryMetadata.FromString(series.summary_metadata)
    content = HParamsPluginData()
    try:
        content.ParseFromString(about.plugin_data.content)
    except DecodeError:  # what a client sent may be anything: the stock handlers say so
        return series
    if not content.session_start_info.group_name:
        return series
    content.session_start_info.group_name = f"{name}/{content.session_start_info.group_name}"
    about.plugin_data.content = content.SerializeToString()
    return replace(series, summary_metadata=about.SerializeToString())
