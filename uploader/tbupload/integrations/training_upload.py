"""The upload of a framework's callback: the URL at the start of a training, a proof at its end."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tbupload.background_upload.following import WAIT_SECONDS, Following, follow
from tbupload.background_upload.process import logger
from tbupload.background_upload.uploaders import ANSWER_SECONDS
from tbupload.console.terminal import escape, write_line
from tbupload.events.points import Tensor
from tbupload.export.event_records import tensor_record, version_record
from tbwire import hparams_pb2, tensors
from tbwire import tensorboard_pb2 as pb
from tbwire.hparams import PLUGIN, SESSION_END_TAG, SESSION_START_TAG, Status

AWAY_SECONDS: Final = 1.0
"""How long to wait for a server that an earlier training of this process waited for in vain."""

TEXT_CHARACTERS_MAX: Final = 10_000
"""Characters of a name or a text that the server takes; longer ones are left out."""
_STARTED_AT: Final = int(time.time())


class TrainingUpload:
    """The uploads of one callback, for one training after the other.

    A training that raises has no end: its upload continues, and ends after this process.

    Args:
        wait_seconds: longest time to wait at the end of a training; 0 for not at all.
        options: arguments of `tbupload.follow` besides the log directory. A name that it does not
            have is a TypeError.
    """

    _is_away = False

    def __init__(self, wait_seconds: float = WAIT_SECONDS, **options: Any) -> None:
        inspect.signature(follow).bind("", **options)
        self._wait_seconds = wait_seconds
        self._options = options
        self._logdir = ""
        self._is_session = False
        self._printing: threading.Thread | None = None
        self.upload: Following | None = None

    def begin(self, logdir: str, hparams: Mapping[str, Any] | None = None) -> None:
        """Start the upload of a directory, and print its URL as soon as it is known.

        Hyperparameters are written to a file in the directory, which must be of one run or have
        runs below it; with None, the framework's own writer has them.
        """
        self._leave()
        self._logdir = logdir
        self._is_session = hparams is not None and write_session_start(logdir, hparams)
        self.upload = follow(logdir, **self._options).__enter__()
        # In a thread: without a server, the URL would be waited for.
        self._printing = threading.Thread(target=_print_url, args=(self.upload,), daemon=True)
        self._printing.start()

    def end(self) -> None:
        """Wait until everything is stored, and say so; a warning says what is missing."""
        if self.upload is None:
            return
        if self._is_session:
            write_session_end(self._logdir)
        if self._wait_seconds > 0:
            self._wait(self.upload)
        self._leave()

    def _wait(self, upload: Following) -> None:
        assert self._printing is not None  # noqa: S101 - it begins with the upload
        self._printing.join(min(self._wait_seconds, ANSWER_SECONDS))
        if self._printing.is_alive() or upload.url is None:
            logger.warning("tbupload: nothing is uploaded yet: there is no experiment so far")
            return
        seconds = min(self._wait_seconds, AWAY_SECONDS) if self._is_away else self._wait_seconds
        result = upload.wait(seconds)
        TrainingUpload._is_away = result is not None and result.exit_code is None
        if result is not None and result.is_complete:
            _print(f"everything is uploaded: {result.url}")

    def _leave(self) -> None:
        """Let the upload end when the next one of this directory begins."""
        if self.upload is not None:
            self.upload.__exit__(None, None, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, for example in the worker of a launcher: no running upload."""
        return {**vars(self), "upload": None, "_printing": None}


def _print_url(upload: Following) -> None:
    url = upload.url
    if url is not None:
        _print(url)


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        write_line(sys.stderr, f"tbupload: {text}")


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
