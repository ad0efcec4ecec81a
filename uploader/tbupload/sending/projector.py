"""Sends what the Embedding Projector shows: the files of each projector config, again whenever one of them changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from tbupload.errors import Conflict, ReadError
from tbupload.reading.filters import SeriesFilter
from tbupload.reading.points import BlobSequenceColumns, Chunk, SeriesPoints
from tbupload.reading.projector_files import CONFIG_NAME, Embedding, ProjectorFiles
from tbupload.sending.batches import WireLimits, encode
from tbupload.sending.client import Client
from tbupload.sending.cursors import CursorBook
from tbupload.sending.logdir_tree import Folder
from tbwire import wire_pb2
from tbwire.tensorboard_pb2 import DATA_CLASS_BLOB_SEQUENCE, SummaryMetadata

PLUGIN: Final = "projector"

TAG_PREFIX: Final = "_projector_/"
"""Before an embedding's name: a run may well have a scalar of the same name."""

LOOK_SECONDS: Final = 1.0
"""How often the files are looked at, at most."""

_ASSETS: Final = "/plugins/org_tensorflow_tensorboard_projector"
_METADATA: Final = SummaryMetadata(
    plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN), data_class=DATA_CLASS_BLOB_SEQUENCE
).SerializeToString()


class ProjectorUpload:
    """The projector configs of one logdir, on their way to one experiment.

    An embedding is a blob sequence of one point, of step 0 and of the time it was read: a newer one takes its place.
    A config with its files is a stream whose first record is their state; it has one byte, which is sent or not yet.
    """

    def __init__(
        self,
        client: Client,
        experiment_id: str,
        logdir: Path,
        choice: tuple[SeriesFilter, WireLimits, CursorBook],
        problem: Callable[[str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.troubles: dict[Path, list[str]] = {}
        self._client = client
        self._experiment_id = experiment_id
        self._logdir = logdir
        self._filter, self._limits, self._cursors = choice
        self._problem = problem
        self._sent: dict[Path, bytes] = {}
        self._look_at = 0.0

    def turn(self, folders: Iterable[Folder], *, is_last: bool = False) -> None:
        """Looks at the configs in these folders, when it is time to, and sends what has changed. Raises ServerError."""
        if time.monotonic() < self._look_at and not is_last:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        for folder in list(folders):
            path = Path(folder.path) / CONFIG_NAME
            if folder.is_gone or not path.exists():
                self.troubles.pop(path, None)
                continue
            try:
                self._look(folder.run.removesuffix(_ASSETS), path)
            except (ReadError, OSError) as error:
                self._note(path, [error])
            except Conflict as conflict:
                self._note(path, [ReadError(path, f"one of its files changed while it was sent ({conflict})")])

    def _look(self, run: str, path: Path) -> None:
        files = ProjectorFiles(self._logdir, path, self._limits.blob_bytes_max)
        state = files.state()
        if state == self._sent.get(path):
            return
        stream = self._stream(run, state)
        embeddings, troubles = files.embeddings()
        self._note(path, troubles)
        chosen = [one for one in embeddings if self._filter.accepts_series(TAG_PREFIX + one.name, PLUGIN)]
        if chosen and not self._is_known(stream, is_return=path in self._sent):
            self._send(stream, chosen)
        self._sent[path] = state

    def _stream(self, run: str, state: bytes) -> wire_pb2.Stream:
        return wire_pb2.Stream(
            run=run or ".",
            file_name=CONFIG_NAME,
            first_record_digest=state,
            filters_digest=self._cursors.filters_digest,
        )

    def _is_known(self, stream: wire_pb2.Stream, *, is_return: bool) -> bool:
        """Whether the server has it; when others were sent since, it is a new generation of its stream."""
        cursor = self._cursors.find((stream.run, stream.file_name, stream.first_record_digest))
        if cursor is None:
            return False
        stream.generation = cursor.generation + is_return
        return not is_return and cursor.offset > 0

    def _send(self, stream: wire_pb2.Stream, embeddings: list[Embedding]) -> None:
        chunk = Chunk(0, 1, 0, 0, [_points(one) for one in embeddings])
        segment = encode(stream, chunk, None, {}, self._limits)
        for digest, blob in segment.blobs.items():
            self._client.put_blob(self._experiment_id, digest, blob)
        result, _ = self._client.write_batch(self._experiment_id, segment.body)
        for cursor in result.cursors:
            self._cursors.record(cursor)
        self.counts["blobs"] += segment.counts["blobs"]

    def _note(self, path: Path, troubles: Iterable[ReadError | OSError]) -> None:
        sentences = [str(trouble) for trouble in troubles]
        for sentence in sentences:
            if sentence not in self.troubles.get(path, []):
                self._problem(sentence)
        self.troubles[path] = sentences


def _points(embedding: Embedding) -> SeriesPoints:
    columns = BlobSequenceColumns(np.zeros(1, np.int64), np.array([time.time()]), [embedding.blobs])
    return SeriesPoints(TAG_PREFIX + embedding.name, PLUGIN, _METADATA, columns)
