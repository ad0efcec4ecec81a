"""Read graphs and run metadata as gzipped text, converted by a handler process."""

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
from tbservice.types.series import Blob


def read_graph(
    request: Request, blob: Blob, attribute_bytes_max: int | None, large_attributes_key: str
) -> bytes:
    """Return the gzipped text of a GraphDef; for the arguments, see `graph_text.write_graph`.

    Raises Invalid if the blob is not a GraphDef, TooLarge if it is over the limit, and the errors
    of `HandlerPool.in_process`.
    """
    return _run_job(request, "write_graph", blob, attribute_bytes_max, large_attributes_key)


def read_run_metadata(request: Request, blob: Blob) -> bytes:
    """Return the gzipped text of a RunMetadata; raises as `read_graph`."""
    return _run_job(request, "write_run_metadata", blob)


def _run_job(request: Request, job: str, blob: Blob, *arguments: object) -> bytes:
    if blob.size > limits.GRAPH_TEXT_BYTES_MAX:
        raise TooLarge(
            f"the blob has {blob.size} bytes; at most {limits.GRAPH_TEXT_BYTES_MAX} are converted "
            "to text (graph_text_bytes_max): read the blob itself instead"
        )

    content: Iterable[bytes] = get_object_store(request).read(blob.object_key, 0, blob.size)
    handlers = cast("HandlerPool", request.app.state.handlers)
    work = functools.partial(handlers.in_process, calls={}, cancel=lambda: None)
    return cast("bytes", from_thread.run(work, job, b"".join(content), *arguments))
