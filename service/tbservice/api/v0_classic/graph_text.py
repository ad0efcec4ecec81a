"""Writes graphs and run metadata out as gzipped text, in a handler process: hostile ones take gigabytes and minutes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from tensorboard.backend import process_graph
from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef

from tbservice.errors import Invalid
from tbservice.handlers.job_loop import WorkerLink

_GZIP_LEVEL: Final = 6  # of gzip

M = TypeVar("M", bound=Message)


def write_graph(
    _link: WorkerLink, content: bytes, attribute_bytes_max: int | None, large_attributes_key: str
) -> bytes:
    """Return the gzipped text of a serialized GraphDef. Raises Invalid when it is none.

    Attributes of more than `attribute_bytes_max` are left out, their keys listed in the one of `large_attributes_key`.
    """
    graph = _parse(GraphDef, content)
    if attribute_bytes_max is not None:
        process_graph.prepare_graph_for_ui(graph, attribute_bytes_max, large_attributes_key)
    return _as_text(graph)


def write_run_metadata(_link: WorkerLink, content: bytes) -> bytes:
    """Return the gzipped text of a serialized RunMetadata. Raises Invalid when it is none."""
    return _as_text(_parse(RunMetadata, content))


JOBS: Final[dict[str, Callable[..., Any]]] = {
    "write_graph": write_graph,
    "write_run_metadata": write_run_metadata,
}


def _parse(kind: type[M], content: bytes) -> M:
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise Invalid(f"what was logged is no {kind.DESCRIPTOR.name}") from error


def _as_text(message: Message) -> bytes:
    return gzip.compress(text_format.MessageToString(message).encode(), _GZIP_LEVEL, mtime=0)
