"""Graphs and run metadata as gzipped text of their protobuf messages, without what is too large to look at."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from tensorboard.backend import process_graph
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.store.objects import ObjectStore
from tbservice.types import Blob

_LEVEL: Final = 6  # of gzip

M = TypeVar("M", bound=Message)


def read_graph(objects: ObjectStore, blob: Blob, attribute_bytes_max: int | None, large_attributes_key: str) -> bytes:
    """The gzipped text of a GraphDef.

    Attributes of more than `attribute_bytes_max` are left out, their keys listed in the one of `large_attributes_key`.
    """
    graph = _parse(GraphDef, objects, blob)
    if attribute_bytes_max is not None:
        process_graph.prepare_graph_for_ui(graph, attribute_bytes_max, large_attributes_key)
    return _as_text(graph)


def read_run_metadata(objects: ObjectStore, blob: Blob) -> bytes:
    """The gzipped text of a RunMetadata."""
    return _as_text(_parse(RunMetadata, objects, blob))


def _parse(kind: type[M], objects: ObjectStore, blob: Blob) -> M:
    if blob.size > limits.graph_text_bytes_max:
        raise TooLarge(
            f"it has {blob.size} bytes, over the limit of {limits.graph_text_bytes_max} that are written out as text "
            "(graph_text_bytes_max); read the blob itself instead"
        )
    content: Iterable[bytes] = objects.read(blob.object_key, 0, blob.size)
    try:
        return kind.FromString(b"".join(content))
    except DecodeError as error:
        raise Invalid(f"what was logged is no {kind.DESCRIPTOR.name}") from error


def _as_text(message: Message) -> bytes:
    return gzip.compress(text_format.MessageToString(message).encode(), _LEVEL, mtime=0)
