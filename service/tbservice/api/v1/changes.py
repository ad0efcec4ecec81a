"""Reading what is new over HTTP: everything since a cursor, every point once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field

from tbservice import limits
from tbservice.api.formats import json_encoding
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.v1.point_queries import DATA_CLASSES, DataClassName, SeriesQuery
from tbservice.reading import changes
from tbservice.reading.changes import ChangeSet, NewPoints
from tbservice.reading.tensor_objects import load_sample
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import Json, ReadGrant

router = APIRouter(
    prefix="/api/v1/experiments/{experiment_id}", tags=["reading"], route_class=ConditionalRoute
)

POST_FOR: Final = "cursors and names that are too long for a URL"


class FollowQuery(SeriesQuery):
    """Which series are followed, and from where on. A cursor is good for the same series only."""

    since: str | None = Field(
        default=None,
        max_length=limits.CURSOR_CHARS_MAX,
        description="The `cursor` of the answer before",
    )
    start: Literal["beginning", "now"] = Field(
        default="beginning",
        description="Where to begin without a cursor: `now` gives a cursor for what comes from now on, and no points",
    )


SinceInUrl = Annotated[
    str | None,
    Field(
        max_length=limits.CURSOR_IN_URL_CHARS_MAX,
        description="The `cursor` of the answer before; post a longer one",
    ),
]


class FollowInUrl(FollowQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)

    since: SinceInUrl = None


class ChangesQuery(FollowQuery):
    """The same, and how much at once."""

    limit: int = Field(
        default=limits.CHANGES_POINTS_MAX,
        ge=1,
        le=limits.CHANGES_POINTS_MAX,
        description="Points, at most",
    )


class ChangesInUrl(ChangesQuery):
    """The same in a URL."""

    model_config = ConfigDict(strict=False)

    since: SinceInUrl = None


@get_and_post(router, "/{kind}/new", ChangesInUrl, post_for=POST_FOR, responses=OBJECT_MISSING)
def read_new(
    grant: MayRead,
    kind: DataClassName,
    query: ChangesQuery,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """All points at full resolution, in portions, and then only those that came since: every point once.

    `{cursor, more, removed, points: {run: {tag: {series_id, plugin, replaces_from, steps, wall_times, values}}}}`.
    Ask again with `since=` the cursor, at once while `more` is true. To hold what the experiment holds: drop the series
    whose ids are in `removed`; where `replaces_from` is a step, drop what you have of the series from it on; then
    append. A series that was deleted and came again has another id.
    """
    return json_encoding.json_response(
        changes_as_json(
            find_changes(database, objects, grant, query, kind, query.since, query.limit)
        )
    )


def find_changes(
    database: Database,
    objects: ObjectStore,
    grant: ReadGrant,
    query: FollowQuery,
    kind: DataClassName,
    since: str | None,
    points_max: int,
) -> ChangeSet:
    """What is new since this cursor; without one, from where the query begins."""
    selection = query.to_selection(DATA_CLASSES[kind])
    with database.snapshot(grant.workspace_id) as db:
        if not since and query.start == "now":
            return changes.cursor_at_head(db, grant, selection)
        change_set = changes.read_changes(db, grant, selection, since or None, points_max)
    return replace(
        change_set,
        series=[replace(one, points=load_sample(objects, one.points)) for one in change_set.series],
    )


def changes_as_json(change_set: ChangeSet) -> Json:
    """The answer of both ways to read what is new."""
    points: Json = {}
    for one in change_set.series:
        points.setdefault(one.label.run, {})[one.label.tag] = _series_as_json(one)
    return {
        "cursor": change_set.cursor,
        "more": change_set.has_more,
        "removed": change_set.removed,
        "points": points,
    }


def _series_as_json(one: NewPoints) -> Json:
    return {
        "series_id": one.series_id,
        "plugin": one.label.plugin,
        "replaces_from": one.replaces_from,
        "steps": np.ascontiguousarray(one.points.steps),
        "wall_times": np.ascontiguousarray(one.points.wall_times),
        "values": json_encoding.sample_values(one.points),
    }
