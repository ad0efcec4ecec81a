"""Classic API: images, audio, graphs and run metadata."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Annotated, cast
from urllib.parse import urlencode

from anyio import from_thread
from fastapi import Query, Request, Response

from tbservice import limits
from tbservice.api.formats import json_encoding
from tbservice.api.http.blob_response import blob_response
from tbservice.api.http.dependencies import (
    MayRead,
    UsesDatabase,
    UsesObjects,
    UsesSettings,
    get_object_store,
)
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.http.routers import make_router
from tbservice.api.v0_classic import media
from tbservice.api.v0_classic.parameters import (
    PREFIX,
    WANTS_RUN,
    WANTS_RUN_AND_TAG,
    WANTS_RUN_AND_TAGNAME,
    Run,
    RunAndTag,
    RunAndTagName,
    parse_integer,
)
from tbservice.errors import MalformedRequest, TooLarge
from tbservice.handlers.pool import HandlerPool
from tbservice.types.series import Blob

router = make_router(
    ignores_unknown_query=True, prefix=PREFIX, tags=["classic"], route_class=ConditionalRoute
)


@router.get("/data/images", openapi_extra=WANTS_RUN_AND_TAG)
def list_images(
    grant: MayRead,
    database: UsesDatabase,
    objects: UsesObjects,
    settings: UsesSettings,
    run_and_tag: RunAndTag,
) -> Response:
    """Return `[{width, height, wall_time, step, query}]`: one item per image of the series.

    `query` is the query string for `individualImage`; width and height are in pixels. Items are
    sorted by wall time, then by step: the order in which images were written is not stored.
    """
    run, tag = run_and_tag
    with database.snapshot(grant) as db:
        images = media.list_images(db, grant, run, tag, settings.reservoir_sizes.images)
    sizes = media.read_sizes(objects, images)
    return json_encoding.json_response(
        [
            {
                "width": sizes[image.width.sha256],
                "height": sizes[image.height.sha256],
                "wall_time": image.wall_time,
                "step": image.step,
                "query": _media_query(index, run, tag),
            }
            for index, image in enumerate(images)
        ]
    )


@router.get(
    "/individualImage",
    response_class=Response,
    openapi_extra=WANTS_RUN_AND_TAGNAME,
    responses=OBJECT_MISSING,
)
@router.get("/data/individualImage", response_class=Response, include_in_schema=False)
def read_image(
    grant: MayRead,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
    settings: UsesSettings,
    run_and_tag: RunAndTagName,
    index: Annotated[
        str, Query(description="Index in the list that `data/images` returns; from 0")
    ] = "0",
) -> Response:
    """Return one image, as it was logged.

    The image at an index can change while the run is being uploaded.
    """
    run, tag = run_and_tag
    with database.snapshot(grant) as db:
        images = media.list_images(db, grant, run, tag, settings.reservoir_sizes.images)
    return blob_response(
        objects, media.get_clip(images, parse_integer("index", index, 0)).blob, request
    )


@router.get("/audio", openapi_extra=WANTS_RUN_AND_TAG)
@router.get("/data/audio", include_in_schema=False)
def list_audio(
    grant: MayRead, database: UsesDatabase, settings: UsesSettings, run_and_tag: RunAndTag
) -> Response:
    """Return `[{wall_time, step, content_type, query}]`: one item per audio clip of the series.

    `query` is the query string for `individualAudio`. `content_type` is the one that was logged
    (any text) or, without one, that of the clip's first bytes. Items are sorted by wall time, then
    by step: the order in which clips were written is not stored.
    """
    run, tag = run_and_tag
    with database.snapshot(grant) as db:
        clips = media.list_clips(db, grant, run, tag, settings.reservoir_sizes.audio)
    return json_encoding.json_response(
        [
            {
                "wall_time": clip.wall_time,
                "step": clip.step,
                "content_type": clip.content_type,
                "query": _media_query(index, run, tag),
            }
            for index, clip in enumerate(clips)
        ]
    )


@router.get(
    "/individualAudio",
    response_class=Response,
    openapi_extra=WANTS_RUN_AND_TAGNAME,
    responses=OBJECT_MISSING,
)
@router.get("/data/individualAudio", response_class=Response, include_in_schema=False)
def read_clip(
    grant: MayRead,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
    settings: UsesSettings,
    run_and_tag: RunAndTagName,
    index: Annotated[
        str, Query(description="Index in the list that `audio` returns; from 0")
    ] = "0",
) -> Response:
    """Return one audio clip, as it was logged.

    The clip at an index can change while the run is being uploaded. `Content-Type` is detected from
    the clip's first bytes, and is one of a few types that browsers play; the logged type is not
    used.
    """
    run, tag = run_and_tag
    with database.snapshot(grant) as db:
        clips = media.list_clips(db, grant, run, tag, settings.reservoir_sizes.audio)
    return blob_response(
        objects, media.get_clip(clips, parse_integer("index", index, 0)).blob, request
    )


@router.get("/data/graph", response_class=Response, openapi_extra=WANTS_RUN)
def read_graph(
    grant: MayRead,
    request: Request,
    database: UsesDatabase,
    run: Run,
    limit_attr_size: Annotated[
        str | None,
        Query(description="Maximum size in bytes of a node's attribute; larger ones are left out"),
    ] = None,
    large_attrs_key: Annotated[
        str | None,
        Query(
            description="Name of an attribute that is added to each node, with the keys of the "
            "attributes left out; required with `limit_attr_size`"
        ),
    ] = None,
) -> Response:
    """Return the run's graph as a GraphDef in protobuf text format, with gzip."""
    size_max = (
        None if limit_attr_size is None else parse_integer("limit_attr_size", limit_attr_size, 1)
    )
    if size_max is not None and not large_attrs_key:
        raise MalformedRequest("'limit_attr_size' requires 'large_attrs_key'")
    with database.snapshot(grant) as db:
        blob = media.get_last_blob(db, grant, media.get_graph_series(db, grant, run))
    return _run_job(request, "write_graph", blob, size_max, large_attrs_key or "")


@router.get("/data/run_metadata", response_class=Response, openapi_extra=WANTS_RUN_AND_TAG)
def read_run_metadata(
    grant: MayRead, request: Request, database: UsesDatabase, run_and_tag: RunAndTag
) -> Response:
    """Return a `session.run()`'s metadata as a RunMetadata in protobuf text format, with gzip."""
    run, tag = run_and_tag
    with database.snapshot(grant) as db:
        blob = media.get_last_blob(db, grant, media.get_run_metadata_series(db, grant, run, tag))
    return _run_job(request, "write_run_metadata", blob)


def _media_query(index: int, run: str, tag: str) -> str:
    return urlencode({"index": index, "tagname": tag, "run": run})


def _run_job(request: Request, job: str, blob: Blob, *arguments: object) -> Response:
    """Return the gzipped text that a job of `graph_text` makes of a blob.

    Raises Invalid if the blob is not such a message, TooLarge if it is over the limit, and the
    errors of `HandlerPool.in_process`.
    """
    if blob.size > limits.GRAPH_TEXT_BYTES_MAX:
        raise TooLarge(
            f"the blob has {blob.size} bytes; at most {limits.GRAPH_TEXT_BYTES_MAX} are converted "
            "to text (graph_text_bytes_max): read the blob itself instead"
        )

    content: Iterable[bytes] = get_object_store(request).read(blob.object_key, 0, blob.size)
    handlers = cast("HandlerPool", request.app.state.handlers)
    work = functools.partial(handlers.in_process, calls={}, cancel=lambda: None)
    text = cast("bytes", from_thread.run(work, job, b"".join(content), *arguments))
    headers = {"Content-Encoding": "gzip", "X-Content-Type-Options": "nosniff"}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")
