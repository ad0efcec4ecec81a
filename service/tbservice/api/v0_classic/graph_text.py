"""Jobs of handler processes: convert graphs and run metadata to text in protobuf text format.

They run there because a hostile message can take gigabytes of memory and minutes.
"""

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

_GZIP_LEVEL: Final = 6

M = TypeVar("M", bound=Message)


def write_graph(
    _link: WorkerLink, content: bytes, attribute_bytes_max: int | None, large_attributes_key: str
) -> bytes:
    """Return a serialized GraphDef as text, compressed with gzip.

    Attributes of nodes over `attribute_bytes_max` bytes are left out; each such node gets an
    attribute `large_attributes_key` that lists their keys. None leaves out nothing.
    Raises Invalid if `content` is not a GraphDef (`tensorflow/core/framework/graph.proto`).
    """
    graph = _parse(GraphDef, content)
    if attribute_bytes_max is not None:
        process_graph.prepare_graph_for_ui(graph, attribute_bytes_max, large_attributes_key)
    return _as_text(graph)


def write_run_metadata(_link: WorkerLink, content: bytes) -> bytes:
    """Return a serialized RunMetadata as text, compressed with gzip.

    Raises Invalid if `content` is not a RunMetadata (`tensorflow/core/protobuf/config.proto`).
    """
    return _as_text(_parse(RunMetadata, content))


JOBS: Final[dict[str, Callable[..., Any]]] = {
    "write_graph": write_graph,
    "write_run_metadata": write_run_metadata,
}


def _parse(message_type: type[M], content: bytes) -> M:
    try:
        return message_type.FromString(content)
    except DecodeError as error:
        raise Invalid(f"the logged bytes are not a {message_type.DESCRIPTOR.name}") from error


def _as_text(message: Message) -> bytes:
    return gzip.compress(text_format.MessageToString(message).encode(), _GZIP_LEVEL, mtime=0)
