"""Digests of whole series over HTTP: what `tbupload verify` compares with the files."""

from __future__ import annotations

import base64

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayRead, UsesDatabase
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.v1.batches import wire_limits
from tbservice.api.v1.point_queries import FewFields, Names
from tbservice.reading import digests
from tbservice.types import Selection, Series

router = APIRouter(
    prefix="/api/v1/experiments/{experiment_id}/digests",
    tags=["verifying"],
    route_class=ConditionalRoute,
)


class DigestQuery(FewFields):
    """Which series; what is absent does not narrow it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: Names = Field(default=None, description="Repeatable")
    plugin: str | None = None
    after: str = Field(default="", description="The `next` of the page before")
    limit: int = Field(
        default=limits.PAGE_ITEMS_MAX,
        ge=1,
        le=limits.PAGE_ITEMS_MAX,
        description="Series on a page",
    )


class DigestInUrl(DigestQuery):
    """The same in a URL, where numbers are text."""

    model_config = ConfigDict(strict=False)


class RecordQuery(FewFields):
    """Which series, and from where on."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str
    tag: str
    after: str = Field(default="", description="The `next` of the page before")
    limit: int = Field(
        default=limits.DIGEST_POINTS_PAGE_ITEMS_MAX,
        ge=1,
        le=limits.DIGEST_POINTS_PAGE_ITEMS_MAX,
        description="Points on a page",
    )


class RecordInUrl(RecordQuery):
    """The same in a URL, where numbers are text."""

    model_config = ConfigDict(strict=False)


class DigestAnswer(BaseModel):
    """What proves one series."""

    run: str
    tag: str
    plugin: str
    data_class: str = Field(description="`scalar`, `tensor` or `blob_sequence`")
    count: int = Field(description="Points: steps that hold one")
    first_step: int | None = Field(description="null when there are no points")
    last_step: int | None
    sha256: str = Field(
        description="SHA-256, in hexadecimal, of the points in step order as little-endian records: step int64, wall "
        "time float64, and of a scalar its value float64; of others the SHA-256 of the value: of a blob sequence, of "
        "its blobs' SHA-256s; of a tensor, of its data type int32, rank int32, dimensions int64, the SHA-256 of its "
        "data, and that of its legacy histogram where there is one"
    )
    metadata_sha256: str = Field(
        description="SHA-256 of the serialized summary metadata, in hexadecimal"
    )


class DigestPage(BaseModel):
    """A page of digests, all of one moment, with what decides what an upload may hold."""

    limits: dict[str, int]
    series: list[DigestAnswer]
    next: str | None = Field(description="Give it as `after` to get the next page; null at the end")


class RecordAnswer(BaseModel):
    """A piece of a series."""

    run: str
    tag: str
    plugin: str
    data_class: str
    count: int
    records: str = Field(
        description="In base64, the records whose SHA-256 is the digest: 24 bytes a scalar, else 48"
    )
    next: str | None = Field(description="Give it as `after` to get the next page; null at the end")


@get_and_post(router, "", DigestInUrl, post_for="more runs than a URL holds")
def list_digests(grant: MayRead, query: DigestQuery, database: UsesDatabase) -> DigestPage:
    """Counts and SHA-256s of whole series, by which others prove that they hold the same points.

    A page is of one moment. It ends early, with a `next`, when the points take long to read.
    """
    selection = Selection(query.plugin, None if query.run is None else frozenset(query.run))
    with database.snapshot(grant.workspace_id) as db:
        page, following = digests.list_digests(db, grant, selection, query.after, query.limit)
    return DigestPage(
        limits=wire_limits(), series=[_digest_answer(digest) for digest in page], next=following
    )


@get_and_post(router, "/records", RecordInUrl, post_for="longer names than a URL holds")
def read_records(grant: MayRead, query: RecordQuery, database: UsesDatabase) -> RecordAnswer:
    """A series' points in step order as the records its digest is made of, to find out where two sides differ."""
    with database.snapshot(grant.workspace_id) as db:
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
    data_class = series.data_class.name.lower()
    return {"run": series.run, "tag": series.tag, "plugin": series.plugin, "data_class": data_class}
