"""Hyperparameters as TensorBoard's own messages say them: metadata, series, and how its HParams
plugin reads them.
"""

from __future__ import annotations

from tensorboard.plugins.hparams import metadata as tensorboard_metadata
from tensorboard.plugins.hparams import plugin_data_pb2

from support.batches import metadata, texts
from tbwire.tensorboard_pb2 import SummaryMetadata

START = tensorboard_metadata.SESSION_START_INFO_TAG


def record(hparams=(), **fields) -> bytes:
    """Metadata of a session start; a value is a number, a string or a bool."""
    start = plugin_data_pb2.SessionStartInfo(**fields)
    for key, value in dict(hparams).items():
        kind = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        setattr(start.hparams[key], kind, value)
    return wrap(session_start_info=start)


def wrap(**data) -> bytes:
    """Metadata with any content of the plugin."""
    content = plugin_data_pb2.HParamsPluginData(**data).SerializeToString()
    return metadata("hparams", 2, content=content)


def series(sent: bytes, wall_time: float, tag: str = START):
    """A series of a segment, with this metadata."""
    made = texts(tag, [0], [b""], [wall_time])
    made.summary_metadata = sent
    return made


def content_of(sent: bytes) -> bytes:
    """The serialized HParamsPluginData in metadata."""
    return SummaryMetadata.FromString(sent).plugin_data.content


def start_of(sent: bytes):
    """The session start in metadata, as TensorBoard's HParams plugin reads it."""
    return tensorboard_metadata.parse_session_start_info_plugin_data(content_of(sent))


def hparams_of(sent: bytes) -> dict:
    """The hyperparameters in metadata."""
    return values_of(start_of(sent))


def values_of(start) -> dict:
    """The hyperparameters of a session start."""
    return {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
