"""Sends what the Embedding Projector shows: the files of each projector config, again whenever one of them changes."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np

from tbupload.errors import Conflict, ReadError, Refused
from tbupload.reading.filters import SeriesFilter
from tbupload.reading.points import BlobSequenceColumns, Chunk, SeriesPoints
from tbupload.reading.projector_files import CONFIG_NAME, Embedding, ProjectorFiles
from tbupload.sending.batches import WireLimits, encode
from tbupload.sending.client import Client
from tbupload.sending.cursors import CursorBook
from tbupload.sending.dispatch import FAULTS_OF_A_SEGMENT
from tbupload.sending.logdir_tree import Folder
from tbwire import wire_pb2
from tbwire.tensorboard_pb2 import DATA_CLASS_BLOB_SEQUENCE, SummaryMetadata

PLUGIN: Final = "projector"

TAG_PREFIX: Final = "_projector_/"
"""Before an embedding's name: a run may well have a scalar of the same name."""

LOOK_SECONDS: Final = 1.0
"""How often the files are looked at, at most."""

_STREAM_DIGEST: Final = hashlib.sha256(CONFIG_NAME.encode()).digest()
"""In the place of a first record's: the stream is the config's, whatever is in it."""

_SENDERS_MAX: Final = 5
"""Uploaders that may send other states of one config at the same moment."""

_ASSETS: Final = "/plugins/org_tensorflow_tensorboard_projector"
_METADATA: Final = SummaryMetadata(
    plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN), data_class=DATA_CLASS_BLOB_SEQUENCE
).SerializeToString()


class ProjectorUpload:
    """The projector configs of one logdir, on their way to one experiment.

    An embedding is a blob sequence of one point, of step 0 and of the time it was read: a newer one takes its place.
    A config with its files is a stream of one byte, and of a new generation whenever their state, whose checksum stands
    for the byte, is another than that of the newest generation: also when it is one that was sent before.
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
            try:
                if folder.is_gone or not path.exists():
                    self.troubles.pop(path, None)
                else:
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
        embeddings, troubles = files.embeddings()
        self._note(path, troubles)
        chosen = [one for one in embeddings if self._filter.accepts_series(TAG_PREFIX + one.name, PLUGIN)]
        try:
            if chosen:
                self._send_unless_known(run or ".", zlib.crc32(state), chosen)
        except Refused as refusal:
            if refusal.status not in FAULTS_OF_A_SEGMENT:
                raise
            self._note(path, [*troubles, ReadError(path, str(refusal))])
        self._sent[path] = state

    def _send_unless_known(self, run: str, checksum: int, embeddings: list[Embedding]) -> None:
        """Sends them as a new generation of the config's stream, unless the newest one ends with this checksum."""
        for _ in range(_SENDERS_MAX):
            stream = wire_pb2.Stream(
                run=run,
                file_name=CONFIG_NAME,
                first_record_digest=_STREAM_DIGEST,
                filters_digest=self._cursors.filters_digest,
            )
            cursor = self._cursors.find((run, CONFIG_NAME, _STREAM_DIGEST))
            if cursor is not None and cursor.offset:
                if cursor.checksum == checksum:
                    return
                stream.generation = cursor.generation + 1
            self._send(stream, checksum, embeddings)

    def _send(self, stream: wire_pb2.Stream, checksum: int, embeddings: list[Embedding]) -> None:
        """Another uploader may have sent this generation meanwhile: the cursor that is recorded tells."""
        chunk = Chunk(0, 1, 0, checksum, [_points(one) for one in embeddings])
        segment = encode(stream, chunk, None, {}, self._limits)
        for digest, blob in segment.blobs.items():
            self._client.put_blob(self._experiment_id, digest, blob)
        result, _ = self._client.write_batch(self._experiment_id, segment.body)
        for cursor in result.cursors:
            self._cursors.record(cursor)
            if cursor.checksum == checksum:
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
