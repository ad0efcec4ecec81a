"""A projector config with the files it names: what is sent of it, and why the rest of it cannot be."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tbupload.errors import ReadError
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import BlobSequenceColumns, Chunk, SeriesPoints
from tbupload.events.projector_files import CONFIG_NAME, Embedding, ProjectorFiles
from tbupload.http.wire_limits import WireLimits
from tbupload.logdir.entries import Folder
from tbupload.upload.segments import EncodedSegment, encode_segment
from tbupload.upload.stream_cursors import StreamName
from tbwire import wire_pb2
from tbwire.tensorboard_pb2 import DATA_CLASS_BLOB_SEQUENCE, SummaryMetadata

PLUGIN: Final = "projector"

TAG_PREFIX: Final = "_projector_/"
"""Before an embedding's name: a run may well have a scalar of the same name."""

_NAME_CHARS_SHOWN: Final = 50
"""Of a name that is too long."""

_STREAM_DIGEST: Final = hashlib.sha256(CONFIG_NAME.encode()).digest()
"""In the place of a first record's: the stream is the config's, whatever is in it."""

_METADATA: Final = SummaryMetadata(
    plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN), data_class=DATA_CLASS_BLOB_SEQUENCE
).SerializeToString()


class ProjectorStream:
    """The config of one folder, as a stream of one byte: the checksum of its files' state stands for that.

    An embedding is a blob sequence of one point, of step 0 and of the time it was read: a newer one takes its place.
    `folder` is that of the run it is shown for.
    """

    def __init__(
        self, folder: Folder, logdir: Path, series_filter: SeriesFilter, limits: WireLimits
    ) -> None:
        self.folder = folder.projector_run
        self.path = Path(folder.path) / CONFIG_NAME
        self._filter = series_filter
        self._limits = limits
        self._files = ProjectorFiles(logdir, self.path, limits.blob_bytes_max)

    @property
    def name(self) -> StreamName:
        """The stream without its generation: the file's name says where in the run it is, which may have two."""
        return self.folder.run, self.path.relative_to(self.folder.path).as_posix(), _STREAM_DIGEST

    def state(self) -> bytes:
        """Bytes that change when one of the files does. Raises ReadError or OSError."""
        return self._files.state()

    def read(self) -> tuple[list[SeriesPoints], list[ReadError]]:
        """The embeddings that are to be sent, and why others cannot be. Raises ReadError or OSError."""
        embeddings, troubles = self._files.embeddings()
        series = []
        for embedding in embeddings:
            tag = TAG_PREFIX + embedding.name
            if not self._filter.accepts_series(tag, PLUGIN):
                continue
            if len(tag) > self._limits.name_chars_max:
                troubles.append(self._name_too_long(embedding.name))
            else:
                series.append(_points(tag, embedding))
        return series, troubles

    def encode(
        self, series: Sequence[SeriesPoints], checksum: int, generation: int = 0
    ) -> EncodedSegment:
        """What was read, as all that there is in this generation of the stream."""
        run, file_name, digest = self.name
        stream = wire_pb2.Stream(
            run=run,
            file_name=file_name,
            first_record_digest=digest,
            generation=generation,
            filters_digest=self._filter.digest(),
        )
        return encode_segment(
            stream, Chunk(0, 1, 0, checksum, list(series)), None, {}, self._limits
        )

    def segment(self) -> tuple[EncodedSegment | None, list[str]]:
        """What is sent to a server that has nothing of it, if anything is; and sentences about what cannot be."""
        try:
            checksum = state_checksum(self.state())
            series, troubles = self.read()
        except (ReadError, OSError) as error:
            return None, [str(error)]
        return self.encode(series, checksum) if series else None, [
            str(trouble) for trouble in troubles
        ]

    def _name_too_long(self, name: str) -> ReadError:
        most = self._limits.name_chars_max - len(TAG_PREFIX)
        shown = f"the tensor name {name[:_NAME_CHARS_SHOWN]!r}…"
        return ReadError(
            self.path, f"{shown} has {len(name):,} characters; the server takes {most:,}"
        )


def state_checksum(state: bytes) -> int:
    """What the stream's cursor says of a state."""
    return zlib.crc32(state)


def _points(tag: str, embedding: Embedding) -> SeriesPoints:
    columns = BlobSequenceColumns(
        np.zeros(1, np.int64), np.array([time.time()]), [embedding.blobs], [""]
    )
    return SeriesPoints(tag, PLUGIN, _METADATA, columns)
