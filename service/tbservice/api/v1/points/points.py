"""Routes for reading the points of series, sampled or all, in the requested format."""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from tbservice.api.formats import negotiate_format
from tbservice.api.formats.points_response import RESPONSES, PointsRequest, make_points_response
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.routers import make_router
from tbservice.api.v1.points.point_queries import (
    BlobSampleQuery,
    SampleQuery,
    ScalarSampleQuery,
    TensorSampleQuery,
)
from tbservice.audit.recording import record_export
from tbservice.db.database import Database
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import catalog
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import SamplingRule
from tbwire.points import DataClass

router = make_router(
    prefix="/api/v1/experiments/{experiment_id}", tags=["reading"], route_class=ConditionalRoute
)

_POST_FOR: Final = "more runs and tags than fit in a URL"


def _respond(
    request: Request,
    database: Database,
    objects: ObjectStore,
    grant: ReadGrant,
    query: SampleQuery,
    data_class: DataClass,
    indices: slice = catalog.ALL_BLOBS,
    *,
    names_lost: bool = False,
) -> Response:
    points_request = PointsRequest(
        query.to_selection(),
        data_class,
        query.to_sampling(),
        negotiate_format(query.format, request.headers.get("accept")),
        indices,
        names_lost=names_lost,
        with_metadata=query.metadata,
        attempt=query.attempt,
    )
    if points_request.sampling.rule is SamplingRule.ALL:
        record_export(database, grant)
    return make_points_response(database, objects, grant, points_request)


@get_and_post(router, "/scalars/data", post_for=_POST_FOR, responses=RESPONSES)
def read_scalars(
    grant: MayRead,
    query: ScalarSampleQuery,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """Return points of scalar series: `kept` of the `total` points of each.

    `{run: {tag: {steps, wall_times, values, kept, total, sampling}}}`; steps ascend, wall times are
    seconds since the epoch. Values are numbers, or the strings "NaN", "Infinity", "-Infinity".
    """
    return _respond(request, database, objects, grant, query, DataClass.SCALAR)


@get_and_post(
    router,
    "/tensors/data",
    url_model=SampleQuery,
    post_for=f"{_POST_FOR}; or for all points except those whose object is lost (`lost=name`)",
    responses=RESPONSES,
)
def read_tensors(
    grant: MayRead,
    query: TensorSampleQuery,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """Return points of tensor series: `kept` of the `total` points of each.

    `{run: {tag: {steps, wall_times, values, kept, total, sampling}}}`; steps ascend, wall times are
    seconds since the epoch. Values are `{dtype, shape, data}`, with the data in row-major order.
    """
    # GET has no `lost`: its query is a SampleQuery.
    names_lost = isinstance(query, TensorSampleQuery) and query.lost == "name"
    return _respond(
        request, database, objects, grant, query, DataClass.TENSOR, names_lost=names_lost
    )


@get_and_post(router, "/blob_sequences/data", post_for=_POST_FOR, responses=RESPONSES)
def read_blob_sequences(
    grant: MayRead,
    query: BlobSampleQuery,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """Return points of blob sequence series: `kept` of the `total` points of each.

    `{run: {tag: {steps, wall_times, values, kept, total, sampling}}}`; steps ascend, wall times are
    seconds since the epoch. Values are lists of `{key}`: fetch the bytes at `/api/v1/blobs/{key}`.
    An audio clip that was logged with a content type has it as `logged_content_type` (any text);
    the `Content-Type` of its bytes is detected from them instead.
    """
    data_class, indices = DataClass.BLOB_SEQUENCE, query.indices()
    return _respond(request, database, objects, grant, query, data_class, indices)
