"""What the Embedding Projector shows of a run: its projector_config.pbtxt, and the files that names.

The config may be anybody's: whatever its paths say, nothing outside the logdir is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from google.protobuf import text_format

from tbupload.errors import ReadError
from tbupload.events.points import Blob, FileBlob
from tbwire.projector_pb2 import EmbeddingInfo, ProjectorConfig

CONFIG_NAME: Final = "projector_config.pbtxt"

CONFIG_BYTES_MAX: Final = 1 << 20
"""Bytes of a config."""

EMBEDDINGS_MAX: Final = 100
"""Embeddings of one config."""

TABLE_BYTES_MAX: Final = 64 << 20
"""Bytes of a tensor written as text: it is converted in memory."""

IN_MEMORY_BYTES_MAX: Final = 8 << 20
"""A larger file is not loaded, but sent from where it lies."""

_TEXT_SUFFIXES: Final = frozenset({".tsv", ".txt", ".csv"})
_NUMBER_BYTES: Final = 4
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Embedding:
    """One tensor and what belongs to it: first a description as JSON, then the blobs that it names in `parts`."""

    name: str
    blobs: list[Blob]


class ProjectorFiles:
    """A config in the logdir, read anew with each of these methods; each raises ReadError, with what to do, or OSError.

    `blob_bytes_max` is what the server takes of one file.
    """

    def __init__(self, logdir: Path, config: Path, blob_bytes_max: int) -> None:
        self.path = config
        self._root = Path(os.path.realpath(logdir))
        self._blob_bytes_max = blob_bytes_max

    def state(self) -> bytes:
        """SHA-256 that changes when the config or a file it names does: of its content, and their sizes and times."""
        config = self._read_config()
        digest = hashlib.sha256(config.SerializeToString(deterministic=True))
        for embedding in config.embeddings:
            for name in (*_sidecar_files(embedding).values(), embedding.tensor_path):
                digest.update(repr((name, self._fingerprint(name))).encode())
        return digest.digest()

    def embeddings(self) -> tuple[list[Embedding], list[ReadError]]:
        """The embeddings that can be sent, and why the others cannot."""
        config = self._read_config()
        found, troubles = [], []
        if config.model_checkpoint_path and not config.embeddings:
            troubles.append(self._needs_tensorflow("its tensors are"))
        names: set[str] = set()
        for embedding in config.embeddings:
            try:
                found.append(self._read(embedding, names))
            except ReadError as error:
                troubles.append(error)
        return found, troubles

    def _read(self, embedding: EmbeddingInfo, names: set[str]) -> Embedding:
        """One embedding, whose name is added to those before it."""
        name = embedding.tensor_name.removesuffix(":0") or Path(embedding.tensor_path).name
        if name in names or "\0" in name:
            what = "stands there twice" if name in names else "holds a NUL"
            raise self._error(f"the tensor name {name!r} {what}: give it another")
        names.add(name)
        if not embedding.tensor_path:
            raise self._needs_tensorflow(f"the tensor {name!r} is")
        tensor, shape = self._read_tensor(embedding)
        parts = {part: self._read_blob(path) for part, path in _sidecar_files(embedding).items()}
        about = {
            "name": name,
            "shape": shape,
            "parts": ["tensor", *parts],
            "sprite_size": list(embedding.sprite.single_image_dim),
        }
        return Embedding(name, [json.dumps(about).encode(), tensor, *parts.values()])

    def _read_tensor(self, embedding: EmbeddingInfo) -> tuple[Blob, list[int]]:
        """Little-endian float32, row by row, and (rows, columns): from a file of just that, or from a table of text."""
        path, shape = embedding.tensor_path, list(embedding.tensor_shape)
        with self._open(path) as file:
            size = os.fstat(file.fileno()).st_size
            is_binary = (
                shape[2:] == [] and size == int(np.prod(shape, dtype=np.float64)) * _NUMBER_BYTES
            )
            if len(shape) == 2 and is_binary and Path(path).suffix not in _TEXT_SUFFIXES:  # noqa: PLR2004 - a matrix
                return self._read_blob(path), shape
            if size > TABLE_BYTES_MAX:
                limit = f"{TABLE_BYTES_MAX >> 20} MiB of text"
                raise self._error(
                    f"{path!r} is over {limit}: write it as binary float32, and its tensor_shape here"
                )
            if not size:
                raise self._error(f"{path!r} is empty")
            table = self._parse_table(path, file)
        return table.astype("<f4", copy=False).tobytes(), list(table.shape)

    def _parse_table(
        self, path: str, file: BinaryIO
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """The rows of a table of text, line by line: all of it as text would take many times its size."""
        lines = (line.decode() for line in file)
        try:
            with warnings.catch_warnings(
                action="error"
            ):  # numpy only warns of a table without rows
                return np.loadtxt(lines, np.float32, comments=None, delimiter="\t", ndmin=2)
        except (ValueError, UserWarning) as error:
            wanted = "neither a table of numbers with tabs between them, nor float32 of the tensor_shape given"
            raise self._error(f"{path!r} is {wanted} ({error})") from error

    def _read_blob(self, name: str) -> Blob:
        with self._open(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._blob_bytes_max:
                raise self._error(
                    f"{name!r} has {size:,} bytes; the server takes {self._blob_bytes_max:,}"
                )
            if size <= IN_MEMORY_BYTES_MAX:
                return file.read(IN_MEMORY_BYTES_MAX)
            digest = hashlib.sha256()
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
            return FileBlob(self._resolve(name), 0, size, digest.digest())

    def _read_config(self) -> ProjectorConfig:
        with self._open(self.path.name) as file:
            content = file.read(CONFIG_BYTES_MAX + 1)
        if len(content) > CONFIG_BYTES_MAX:
            raise self._error(f"is over {CONFIG_BYTES_MAX >> 20} MiB")
        try:
            config = text_format.Parse(
                content.decode(), ProjectorConfig(), allow_unknown_field=True
            )
        except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(f"is no projector config: {error}") from error
        if len(config.embeddings) > EMBEDDINGS_MAX:
            raise self._error(f"has over {EMBEDDINGS_MAX} embeddings")
        return config

    def _fingerprint(self, name: str) -> tuple[int, int, int] | None:
        if not name:
            return None
        try:
            with self._open(name) as file:
                status = os.fstat(file.fileno())
        except (ReadError, OSError):
            return None
        return status.st_size, status.st_mtime_ns, status.st_ino

    def _resolve(self, name: str) -> Path:
        """Where a path of the config leads, links followed; raises ReadError when that is not in the logdir."""
        try:
            real = Path(os.path.realpath(self.path.parent / name))
        except ValueError as error:
            raise self._error(f"{name!r} is no path") from error
        if not real.is_relative_to(self._root):
            raise self._error(
                f"{name!r} is outside the logdir, and is not read: copy it into the logdir"
            )
        return real

    def _open(self, name: str) -> BinaryIO:
        real = self._resolve(name)
        # Without blocking: a pipe would wait for its writer.
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NOFOLLOW", 0)
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_BINARY", 0)
        )
        try:
            descriptor = os.open(real, flags)
        except OSError as error:
            raise self._error(f"{name!r} cannot be read: {error.strerror}") from error
        file = os.fdopen(descriptor, "rb") if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        try:
            # Looked at again: since it was resolved, one of its directories may have become a link.
            if file is None or not os.path.samestat(
                os.fstat(descriptor), self._resolve(name).stat()
            ):
                raise self._error(f"{name!r} is no regular file")
        except (ReadError, OSError):
            os.close(descriptor) if file is None else file.close()
            raise
        return file

    def _needs_tensorflow(self, what: str) -> ReadError:
        remedy = "write it to a file of float32 or tab-separated numbers, and name that as its tensor_path"
        return self._error(f"{what} in a checkpoint, which only TensorFlow can read: {remedy}")

    def _error(self, explanation: str) -> ReadError:
        return ReadError(self.path, explanation)


def _sidecar_files(embedding: EmbeddingInfo) -> dict[str, str]:
    """The files that stand beside the tensor, by what they are."""
    named = {
        "metadata": embedding.metadata_path,
        "sprite": embedding.sprite.image_path,
        "bookmarks": embedding.bookmarks_path,
    }
    return {part: path for part, path in named.items() if path}
