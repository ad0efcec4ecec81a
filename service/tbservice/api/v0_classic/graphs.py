"""Graphs and run metadata as gzipped text of their protobuf messages, without what is too large to look at."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import cast

from anyio import from_thread
from fastapi import Request

from tbservice import limits
from tbservice.api.http.dependencies import get_object_store
from tbservice.errors import TooLarge
from tbservice.handlers.pool import HandlerPool
from tbservice.types import Blob


def read_graph(
    request: Request, blob: Blob, attribute_bytes_max: int | None, large_attributes_key: str
) -> bytes:
    """Return the gzipped text of a GraphDef; raises as `HandlerPool.in_process`, and Invalid.

    Attributes of more than `attribute_bytes_max` are left out, their keys listed in the one of `large_attributes_key`.
    """
    return _write(request, "write_graph", blob, attribute_bytes_max, large_attributes_key)


def read_run_metadata(request: Request, blob: Blob) -> bytes:
    """Return the gzipped text of a RunMetadata; raises as `read_graph`."""
    return _write(request, "write_run_metadata", blob)


def _write(request: Request, job: str, blob: Blob, *arguments: object) -> bytes:
    if blob.size > limits.GRAPH_TEXT_BYTES_MAX:
        raise TooLarge(
            f"it has {blob.size} bytes, over the limit of {limits.GRAPH_TEXT_BYTES_MAX} that are written out as text "
            "(graph_text_bytes_max); read the blob itself instead"
        )
    content: Iterable[bytes] = get_object_store(request).read(blob.object_key, 0, blob.size)
    handlers = cast("HandlerPool", request.app.state.handlers)
    work = functools.partial(handlers.in_process, calls={}, cancel=lambda: None)
    return cast("bytes", from_thread.run(work, job, b"".join(content), *arguments))
