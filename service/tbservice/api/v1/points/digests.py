"""Routes for digests of series, which `tbupload verify` compares with those of the event files."""

from __future__ import annotations

import base64
from typing import Final

from pydantic import BaseModel, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayRead, UsesDatabase
from tbservice.api.http.etag import FreshRoute
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.request_models import FewFields, Names
from tbservice.api.http.routers import make_router
from tbservice.api.v1.uploads.batches import wire_limits
from tbservice.reading import digests
from tbservice.types.sampling import Selection
from tbservice.types.series import Series

DIGEST_POINTS_PAGE_ITEMS_MAX: Final = 100_000
"""Points on one page of a series' digest records."""

router = make_router(
    prefix="/api/v1/experiments/{experiment_id}/digests",
    tags=["verifying"],
    route_class=FreshRoute,
)


class DigestQuery(FewFields, strict=True):
    """The selected series: those of the runs and the plugin; an absent field selects all."""

    run: Names = Field(default=None, description="Name of a run; repeatable")
    plugin: str | None = Field(default=None, description="Name of the plugin that owns the series")
    after: str = Field(default="", description="`next` of the previous page")
    limit: int = Field(
        default=limits.PAGE_ITEMS_MAX,
        ge=1,
        le=limits.PAGE_ITEMS_MAX,
        description="Maximum series per page",
    )


class RecordQuery(FewFields, strict=True):
    """The selected series, and a page of its records."""

    run: str = Field(description="Name of the run")
    tag: str = Field(description="Name of the tag")
    after: str = Field(default="", description="`next` of the previous page")
    limit: int = Field(
        default=DIGEST_POINTS_PAGE_ITEMS_MAX,
        ge=1,
        le=DIGEST_POINTS_PAGE_ITEMS_MAX,
        description="Maximum points per page",
    )


class DigestAnswer(BaseModel):
    """The digest of one series."""

    run: str
    tag: str
    plugin: str
    data_class: str = Field(description="`scalar`, `tensor` or `blob_sequence`")
    count: int = Field(description="Number of points")
    first_step: int | None = Field(description="Lowest step; null if there are no points")
    last_step: int | None = Field(description="Highest step; null if there are no points")
    sha256: str = Field(
        description="SHA-256, in hexadecimal, of all points in step order. A point is a "
        "little-endian record of step (int64), wall time (float64) and value. The value of a "
        "scalar is a float64. That of a blob sequence is the SHA-256 of the SHA-256s of its blobs. "
        "That of a tensor is the SHA-256 of data type (int32), rank (int32), dimensions (int64 "
        "each), the SHA-256 of its data and, if it has one, the SHA-256 of its legacy histogram"
    )
    metadata_sha256: str = Field(
        description="SHA-256 of the serialized summary metadata, in hexadecimal"
    )


class DigestPage(BaseModel):
    """A page of digests, all of the same snapshot, with the limits of uploads."""

    limits: dict[str, int] = Field(
        description="The server's limits on batches, by name: values over them are not stored"
    )
    series: list[DigestAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


class RecordAnswer(BaseModel):
    """A page of the records of a series."""

    run: str
    tag: str
    plugin: str
    data_class: str = Field(description="`scalar`, `tensor` or `blob_sequence`")
    count: int = Field(description="Number of records on this page")
    records: str = Field(
        description="The records that the digest's SHA-256 is computed over, in base64: 24 bytes "
        "per scalar, 48 bytes per tensor or blob sequence"
    )
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@get_and_post(router, "", post_for="more runs than fit in a URL")
def list_digests(grant: MayRead, query: DigestQuery, database: UsesDatabase) -> DigestPage:
    """Return the number of points and the SHA-256 of each series.

    With these, a client proves that it has the same points. All digests of a page are of the same
    snapshot. If reading takes long, a page has fewer than `limit` series, and a `next`.
    """
    selection = Selection(query.plugin, None if query.run is None else frozenset(query.run))
    with database.snapshot(grant) as db:
        page, following = digests.list_digests(db, grant, selection, query.after, query.limit)
    return DigestPage(
        limits=wire_limits(), series=[_digest_answer(digest) for digest in page], next=following
    )


@get_and_post(router, "/records", post_for="names too long for a URL")
def read_records(grant: MayRead, query: RecordQuery, database: UsesDatabase) -> RecordAnswer:
    """Return the records that a series' digest is computed over, in step order.

    With these, a client finds the points that differ from its own.
    """
    with database.snapshot(grant) as db:
        page = digests.read_records(db, grant, query.run, query.tag, query.after, query.limit)
    records = base64.b64encode(page.records.tobytes()).decode()
    return RecordAnswer(
        **_identity(page.series),
        count=len(page.records),
        records=records,
        next=page.next_page_token,
    )


def _digest_answer(digest: digests.Digest) -> DigestAnswer:
    return DigestAnswer(
        **_identity(digest.series),
        count=digest.count,
        first_step=digest.first_step,
        last_step=digest.last_step,
        sha256=digest.sha256,
        metadata_sha256=digest.metadata_sha256,
    )


def _identity(series: Series) -> dict[str, str]:
    data_class = series.data_class.label
    return {"run": series.run, "tag": series.tag, "plugin": series.plugin, "data_class": data_class}
