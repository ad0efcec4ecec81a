"""Images, audio, graphs and run metadata by the classic API."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from tbservice.api.formats import json_encoding
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects, UsesSettings
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.v0_classic import graphs, media
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
from tbservice.api.v1.blobs import blob_response
from tbservice.errors import MalformedRequest

router = APIRouter(prefix=PREFIX, tags=["classic"], route_class=ConditionalRoute)


@router.get("/data/images", openapi_extra=WANTS_RUN_AND_TAG)
def list_images(
    grant: MayRead,
    database: UsesDatabase,
    objects: UsesObjects,
    settings: UsesSettings,
    run_and_tag: RunAndTag,
) -> Response:
    """`[{width, height, wall_time, step, query}]`; the query is for `individualImage`.

    By wall time, and by step where wall times are equal: the order in which images were written is not kept.
    """
    run, tag = run_and_tag
    with database.snapshot(grant.workspace_id) as db:
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
    index: Annotated[str, Query(description="Position in the list of `images`")] = "0",
) -> Response:
    """One image, as it was logged. Which one a query means may change while the run goes on."""
    run, tag = run_and_tag
    with database.snapshot(grant.workspace_id) as db:
        images = media.list_images(db, grant, run, tag, settings.reservoir_sizes.images)
    return blob_response(
        objects, media.get_clip(images, parse_integer("index", index, 0)).blob, request
    )


@router.get("/audio", openapi_extra=WANTS_RUN_AND_TAG)
@router.get("/data/audio", include_in_schema=False)
def list_audio(
    grant: MayRead, database: UsesDatabase, settings: UsesSettings, run_and_tag: RunAndTag
) -> Response:
    """`[{wall_time, step, content_type, query}]`; the query is for `individualAudio`.

    The content type is the one that was logged with the clip, any text, or what its first bytes say where none was. By
    wall time, and by step where wall times are equal: the order in which clips were written is not kept.
    """
    run, tag = run_and_tag
    with database.snapshot(grant.workspace_id) as db:
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
    index: Annotated[str, Query(description="Position in the list of `audio`")] = "0",
) -> Response:
    """One clip, as it was logged. Which one a query means may change while the run goes on.

    Its `Content-Type` is what its first bytes say, of a few that browsers play, whatever was logged.
    """
    run, tag = run_and_tag
    with database.snapshot(grant.workspace_id) as db:
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
        str | None, Query(description="Bytes of the largest attribute that is shown")
    ] = None,
    large_attrs_key: Annotated[
        str | None, Query(description="Where the keys of larger ones are listed")
    ] = None,
) -> Response:
    """The run's graph: the gzipped text of a GraphDef."""
    size_max = (
        None if limit_attr_size is None else parse_integer("limit_attr_size", limit_attr_size, 1)
    )
    if size_max is not None and not large_attrs_key:
        raise MalformedRequest("large_attrs_key must be given with limit_attr_size")
    with database.snapshot(grant.workspace_id) as db:
        blob = media.get_last_blob(db, grant, media.get_graph_series(db, grant, run))
    return _gzip_response(graphs.read_graph(request, blob, size_max, large_attrs_key or ""))


@router.get("/data/run_metadata", response_class=Response, openapi_extra=WANTS_RUN_AND_TAG)
def read_run_metadata(
    grant: MayRead, request: Request, database: UsesDatabase, run_and_tag: RunAndTag
) -> Response:
    """The metadata of one `session.run()`: the gzipped text of a RunMetadata."""
    run, tag = run_and_tag
    with database.snapshot(grant.workspace_id) as db:
        blob = media.get_last_blob(db, grant, media.get_run_metadata_series(db, grant, run, tag))
    return _gzip_response(graphs.read_run_metadata(request, blob))


def _media_query(index: int, run: str, tag: str) -> str:
    return urlencode({"index": index, "tagname": tag, "run": run})


def _gzip_response(text: bytes) -> Response:
    headers = {"Content-Encoding": "gzip", "X-Content-Type-Options": "nosniff"}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")
