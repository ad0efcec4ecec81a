"""Routes for reading blobs, with Range and ETag (RFC 9110)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Response

from tbservice.api.http.blob_response import blob_response
from tbservice.api.http.dependencies import Secret, UsesDatabase, UsesObjects
from tbservice.api.http.grant_route import PendingGrant
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.http.routers import make_router
from tbservice.auth import grants
from tbservice.reading import blobs
from tbservice.types.grants import ReadGrant

router = make_router(tags=["reading"])


async def _may_read_blob(
    request: Request, blob_key: str, database: UsesDatabase, secret: Secret
) -> PendingGrant:
    return PendingGrant(
        request,
        database,
        lambda db: grants.grant_read(db, blobs.parse_blob_experiment(blob_key), secret),
    )


@router.get("/data/blob/{blob_key}", response_class=Response, include_in_schema=False)
@router.get("/api/v1/blobs/{blob_key}", response_class=Response, responses=OBJECT_MISSING)
def read_blob(
    grant: Annotated[ReadGrant, Depends(_may_read_blob)],
    blob_key: str,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """Return the bytes of a blob, or a `Range` of them, by its key in a blob sequence.

    `/data/blob/{blob_key}` is the same: TensorBoard's own path.
    """
    with database.snapshot(grant) as db:
        blob = blobs.find_blob(db, grant, blob_key)
    return blob_response(objects, blob, request)
