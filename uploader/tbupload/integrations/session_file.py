"""Hyperparameters of a training, as an event file that TensorBoard's HParams dashboard reads.

It has what `tensorboard.plugins.hparams.api` writes, which needs TensorFlow for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tbupload.background_upload.process import logger
from tbupload.console.terminal import escape
from tbupload.events.points import Tensor
from tbupload.export.event_records import tensor_record, version_record
from tbwire import hparams_pb2, tensors
from tbwire import tensorboard_pb2 as pb
from tbwire.hparams import PLUGIN, SESSION_END_TAG, SESSION_START_TAG, Status

TEXT_CHARACTERS_MAX: Final = 10_000
"""Characters of a name or a text that the server takes; longer ones are left out."""

_STARTED_AT: Final = int(time.time())


def write_session_start(logdir: str, hparams: Mapping[str, Any]) -> bool:
    """Write the hyperparameters to a file in the directory; return whether that was possible.

    Numbers, texts and truth values are written, others are left out. On other file systems
    (`gs://`) nothing is. Never raises OSError: a training is not stopped for this.
    """
    session = hparams_pb2.SessionStartInfo(start_time_secs=time.time())
    for name, value in hparams.items():
        if len(name) > TEXT_CHARACTERS_MAX:
            continue
        if isinstance(value, bool):
            session.hparams.add(key=name).value.bool_value = value
        elif isinstance(value, (int, float)):
            session.hparams.add(key=name).value.number_value = value
        elif isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX:
            session.hparams.add(key=name).value.string_value = value
    content = hparams_pb2.HParamsPluginData(session_start_info=session)
    return _append(logdir, SESSION_START_TAG, content)


def write_session_end(logdir: str) -> bool:
    """Write that the training ended successfully, now; as `write_session_start`."""
    session = hparams_pb2.SessionEndInfo(
        status=Status.STATUS_SUCCESS.value, end_time_secs=time.time()
    )
    return _append(logdir, SESSION_END_TAG, hparams_pb2.HParamsPluginData(session_end_info=session))


def _append(logdir: str, tag: str, content: hparams_pb2.HParamsPluginData) -> bool:
    if "://" in logdir:
        return False

    now = time.time()
    data = pb.SummaryMetadata.PluginData(plugin_name=PLUGIN, content=content.SerializeToString())
    metadata = pb.SummaryMetadata(plugin_data=data, data_class=pb.DATA_CLASS_TENSOR)
    empty = Tensor(tensors.FLOAT, (), bytes(4))
    record = tensor_record(tag, 0, now, empty, metadata.SerializeToString())

    # One file for all trainings of this process: of several records, the last one counts.
    path = Path(logdir, f"events.out.tfevents.{_STARTED_AT:010d}.{os.getpid()}.hparams")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write((b"" if file.tell() else version_record(now)) + record)
    except OSError as error:
        logger.warning("tbupload: %s", escape(f"hyperparameters: {path}: {error.strerror}"))
        return False
    return True
