"""A projector config and the files it names, as a stream of blob sequences."""

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
from tbupload.events.points import Chunk, SeriesPoints
from tbupload.events.projector_files import CONFIG_NAME, Embedding, ProjectorFiles
from tbupload.http.wire_limits import WireLimits
from tbupload.logdir.entries import Folder
from tbupload.upload.segments import EncodedSegment, encode_segment
from tbupload.upload.stream_cursors import StreamName
from tbwire import wire_pb2
from tbwire.points import BlobSequencePoints
from tbwire.tensorboard_pb2 import DATA_CLASS_BLOB_SEQUENCE, SummaryMetadata

PLUGIN: Final = "projector"

TAG_PREFIX: Final = "_projector_/"
"""Prefix of an embedding's name: a run may have a scalar of the same name."""

_NAME_CHARS_SHOWN: Final = 50
"""Characters shown of a name that is too long."""

_STREAM_DIGEST: Final = hashlib.sha256(CONFIG_NAME.encode()).digest()
"""Takes the place of a first record's digest: a config is one stream, with any content."""

_METADATA: Final = SummaryMetadata(
    plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN), data_class=DATA_CLASS_BLOB_SEQUENCE
).SerializeToString()


class ProjectorStream:
    """The projector config of one folder, as a stream of one byte per generation.

    The cursor's checksum is that of the files' state, so that an unchanged config is recognized. An
    embedding is a blob sequence with one point at step 0; its wall time is when it was read, so
    that a newer point replaces it. `folder` is the folder of the run that shows it.
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
        """Return the stream's name: its file name is a path, as a run may have two configs."""
        return self.folder.run, self.path.relative_to(self.folder.path).as_posix(), _STREAM_DIGEST

    def state(self) -> bytes:
        """Return bytes that change when one of the files does; raise ReadError or OSError."""
        return self._files.state()

    def read(self) -> tuple[list[SeriesPoints], list[ReadError]]:
        """Return the embeddings to send, and the errors of others; raise ReadError or OSError."""
        embeddings, errors = self._files.embeddings()
        series = []
        for embedding in embeddings:
            tag = TAG_PREFIX + embedding.name
            if not self._filter.accepts_series(tag, PLUGIN):
                continue
            if len(tag) > self._limits.name_chars_max:
                errors.append(self._name_too_long(embedding.name))
            else:
                series.append(_points(tag, embedding))
        return series, errors

    def encode(
        self, series: Sequence[SeriesPoints], checksum: int, generation: int = 0
    ) -> EncodedSegment:
        """Return the series as the one segment of a generation of the stream."""
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
        """Return the segment for a server without this stream, and sentences about errors."""
        try:
            checksum = state_checksum(self.state())
            series, errors = self.read()
        except (ReadError, OSError) as error:
            return None, [str(error)]
        segment = self.encode(series, checksum) if series else None
        return segment, [str(error) for error in errors]

    def _name_too_long(self, name: str) -> ReadError:
        chars_max = self._limits.name_chars_max - len(TAG_PREFIX)
        shown = f"the tensor name {name[:_NAME_CHARS_SHOWN]!r}…"
        return ReadError(
            self.path, f"{shown} has {len(name):,} characters; the server takes {chars_max:,}"
        )


def state_checksum(state: bytes) -> int:
    """Return the checksum of a state, as the stream's cursor has it."""
    return zlib.crc32(state)


def _points(tag: str, embedding: Embedding) -> SeriesPoints:
    columns = BlobSequencePoints(
        np.zeros(1, np.int64), np.array([time.time()]), [embedding.blobs], [""]
    )
    return SeriesPoints(tag, PLUGIN, _METADATA, columns)
