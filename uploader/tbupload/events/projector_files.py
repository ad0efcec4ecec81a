"""Read what the Embedding Projector shows of a run: projector_config.pbtxt and the files it names.

Source: `tensorboard/plugins/projector/projector_plugin.py` and `projector_config.proto` beside it.
The config is not trusted: with any paths in it, nothing outside the log directory is read.
TensorBoard itself reads nothing outside the config's directory (`_rel_to_abs_asset_path`).
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
"""PROJECTOR_FILENAME in `tensorboard/plugins/projector/metadata.py`."""

CONFIG_BYTES_MAX: Final = 1 << 20
"""Bytes of a config."""

EMBEDDINGS_MAX: Final = 100
"""Embeddings in one config."""

TABLE_BYTES_MAX: Final = 64 << 20
"""Bytes of a tensor in text form, which is converted in memory."""

IN_MEMORY_BYTES_MAX: Final = 8 << 20
"""A larger file is not loaded: its bytes are read when they are sent."""

_TEXT_SUFFIXES: Final = frozenset({".tsv", ".txt", ".csv"})
"""Files with these suffixes are text, even if their size is that of the binary form.

TensorBoard reads a file as text first, and as binary if it is not UTF-8: short binary files can be
both.
"""

_NUMBER_BYTES: Final = 4
"""Bytes of a float32."""

_READ_BYTES: Final = 1 << 20
"""Bytes of a large file that are in memory at a time while it is hashed."""


@dataclass(frozen=True)
class Embedding:
    """One tensor with its metadata: a JSON description, then the blobs that its `parts` names."""

    name: str
    blobs: list[Blob]


class ProjectorFiles:
    """A projector config in the log directory, and the files that it names.

    Each method reads the config again. Each raises ReadError, with what to do, and OSError.

    Args:
        logdir: The log directory.
        config: The path of the config in it.
        blob_bytes_max: The size of the largest file that the server accepts.
    """

    def __init__(self, logdir: Path, config: Path, blob_bytes_max: int) -> None:
        self.path = config
        self._root = Path(os.path.realpath(logdir))
        self._blob_bytes_max = blob_bytes_max

    def state(self) -> bytes:
        """Return a SHA-256 of the config's content, and of its files' sizes and times."""
        config = self._read_config()
        digest = hashlib.sha256(config.SerializeToString(deterministic=True))
        for embedding in config.embeddings:
            for name in (*_sidecar_files(embedding).values(), embedding.tensor_path):
                digest.update(repr((name, self._fingerprint(name))).encode())
        return digest.digest()

    def embeddings(self) -> tuple[list[Embedding], list[ReadError]]:
        """Return the embeddings that can be sent, and an error for each of the others."""
        config = self._read_config()
        embeddings, errors = [], []
        if config.model_checkpoint_path and not config.embeddings:
            errors.append(self._needs_tensorflow("its tensors are"))
        names: set[str] = set()
        for embedding in config.embeddings:
            try:
                embeddings.append(self._read(embedding, names))
            except ReadError as error:
                errors.append(error)
        return embeddings, errors

    def _read(self, embedding: EmbeddingInfo, names: set[str]) -> Embedding:
        """Return one embedding; its name must not be in `names`, and is added to them."""
        # TensorBoard drops the suffix, too: the output's number in TensorFlow's name of a tensor.
        name = embedding.tensor_name.removesuffix(":0") or Path(embedding.tensor_path).name
        if name in names or "\0" in name:
            what = "occurs twice" if name in names else "contains a NUL"
            raise self._error(f"the tensor name {name!r} {what}: choose another name")
        names.add(name)

        if not embedding.tensor_path:
            raise self._needs_tensorflow(f"the tensor {name!r} is")
        tensor, shape = self._read_tensor(embedding)
        blobs = {kind: self._read_blob(path) for kind, path in _sidecar_files(embedding).items()}
        description = {
            "name": name,
            "shape": shape,
            "parts": ["tensor", *blobs],
            "sprite_size": list(embedding.sprite.single_image_dim),
        }
        return Embedding(name, [json.dumps(description).encode(), tensor, *blobs.values()])

    def _read_tensor(self, embedding: EmbeddingInfo) -> tuple[Blob, list[int]]:
        """Return a tensor as little-endian float32, row by row, and its [rows, columns].

        The file is exactly that (`_read_tensor_binary_file` in `projector_plugin.py`), or a table
        of text without a header (`_read_tensor_tsv_file`).
        """
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
                    f"{path!r} is over {limit}: write binary float32, and its tensor_shape here"
                )
            if not size:
                raise self._error(f"{path!r} is empty")
            table = self._parse_table(path, file)
        return table.astype("<f4", copy=False).tobytes(), list(table.shape)

    def _parse_table(
        self, path: str, file: BinaryIO
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Return the rows of a text table, parsed line by line to bound the memory."""
        lines = (line.decode() for line in file)
        try:
            # numpy only warns about a table without rows.
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return np.loadtxt(lines, np.float32, comments=None, delimiter="\t", ndmin=2)
        except (ValueError, UserWarning) as error:
            explanation = (
                "is neither a table of numbers separated by tabs, "
                "nor binary float32 with the given tensor_shape"
            )
            raise self._error(f"{path!r} {explanation} ({error})") from error

    def _read_blob(self, name: str) -> Blob:
        with self._open(name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > self._blob_bytes_max:
                raise self._error(
                    f"{name!r} has {size:,} bytes; the server accepts {self._blob_bytes_max:,}"
                )
            if size <= IN_MEMORY_BYTES_MAX:
                return file.read(IN_MEMORY_BYTES_MAX)
            digest = hashlib.sha256()
            while content := file.read(_READ_BYTES):
                digest.update(content)
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
            raise self._error(f"is not a projector config: {error}") from error
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
        """Return the real path of a path in the config, relative to the config's directory.

        Raises ReadError when it is not in the log directory after links were followed.
        """
        if "\0" in name:  # of which Python 3.9 learns only when it opens the file
            raise self._error(f"{name!r} is not a valid path")
        try:
            real = Path(os.path.realpath(self.path.parent / name))
        except ValueError as error:
            raise self._error(f"{name!r} is not a valid path") from error
        if not real.is_relative_to(self._root):
            raise self._error(
                f"{name!r} is outside the logdir and is not read: copy it into the logdir"
            )
        return real

    def _open(self, name: str) -> BinaryIO:
        real = self._resolve(name)
        # Opening a named pipe would otherwise block until it has a writer.
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
            # Resolved again: a directory of the path may have been replaced by a link meanwhile.
            if file is None or not os.path.samestat(
                os.fstat(descriptor), self._resolve(name).stat()
            ):
                raise self._error(f"{name!r} is not a regular file")
        except (ReadError, OSError):
            os.close(descriptor) if file is None else file.close()
            raise
        return file

    def _needs_tensorflow(self, what: str) -> ReadError:
        remedy = "write a file of float32 or tab-separated numbers, and set tensor_path to it"
        return self._error(f"{what} in a checkpoint, which only TensorFlow can read: {remedy}")

    def _error(self, explanation: str) -> ReadError:
        return ReadError(self.path, explanation)


def _sidecar_files(embedding: EmbeddingInfo) -> dict[str, str]:
    """Return the paths of the files that belong to the tensor, by their kind."""
    paths = {
        "metadata": embedding.metadata_path,
        "sprite": embedding.sprite.image_path,
        "bookmarks": embedding.bookmarks_path,
    }
    return {kind: path for kind, path in paths.items() if path}
