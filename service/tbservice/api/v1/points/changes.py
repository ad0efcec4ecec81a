"""Routes for reading the changes after a change cursor: each point is returned once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from fastapi import Response
from pydantic import Field

from tbservice import limits
from tbservice.api.formats import json_encoding
from tbservice.api.formats.json_format import sample_values
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.http.routers import make_router
from tbservice.api.v1.points.point_queries import SeriesQuery
from tbservice.db.database import Database
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import changes
from tbservice.reading.changes import ChangeSet, NewPoints
from tbservice.reading.tensor_objects import load_sample
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Json
from tbwire.points import DATA_CLASSES, DataClassName

CURSOR_CHARS_MAX: Final = 700_000
"""Characters of a change cursor."""

CHANGES_POINTS_MAX: Final = 100_000
"""Points in one response of the change feed."""

router = make_router(
    prefix="/api/v1/experiments/{experiment_id}", tags=["reading"], route_class=ConditionalRoute
)

POST_FOR: Final = "change cursors and names that are too long for a URL"


class FollowQuery(SeriesQuery):
    """The series to follow, and where to begin; a change cursor is valid for these series only."""

    since: str | None = Field(
        default=None,
        max_length=CURSOR_CHARS_MAX,
        description="`cursor` of the previous response: return what changed after it",
    )
    start: Literal["beginning", "now"] = Field(
        default="beginning",
        description="Where to begin without `since`: `beginning` returns all points; `now` returns "
        "no points, and a cursor for what comes after",
    )


class TailQuery(FollowQuery):
    """A `FollowQuery`, and which events other than those with points are sent."""

    status: bool = Field(
        default=False,
        description="Send an event `status` with `{status}`, first and when it changes: how the "
        "experiment's upload is. Strangers and readers of share links get none",
    )


SINCE_IN_URL: Final[dict[str, Any]] = {
    "since": Field(
        default=None,
        max_length=limits.CURSOR_IN_URL_CHARS_MAX,
        description="`cursor` of the previous response: return what changed after it. If it is "
        "longer than this, use POST",
    )
}
"""Fields that differ where the query is in a URL: cursors there are shorter."""


class ChangesQuery(FollowQuery):
    """A `FollowQuery` with the maximum number of points in a response."""

    limit: int = Field(
        default=CHANGES_POINTS_MAX,
        ge=1,
        le=CHANGES_POINTS_MAX,
        description="Maximum points in the response",
    )


@get_and_post(
    router, "/{kind}/new", post_for=POST_FOR, url_fields=SINCE_IN_URL, responses=OBJECT_MISSING
)
def read_new(
    grant: MayRead,
    kind: DataClassName,
    query: ChangesQuery,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """Return the changes after a change cursor, at full resolution; every point is returned once.

    Without `since`, all points are returned first, over several responses. The response is
    `{cursor, more, removed, points: {run: {tag: {series_id, plugin, replaces_from, steps,
    wall_times, values}}}}`. Store `cursor` and pass it as `since`; repeat at once while `more` is
    true.

    To keep a copy up to date: delete the series whose ids are in `removed`; if `replaces_from` is a
    step, delete your points of the series from that step on; then append the points. A series that
    was deleted and uploaded again has a new id.
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
    """Return the changes after a change cursor, with the tensors that are stored in S3 loaded.

    Args:
        database: The database; a snapshot is open while rows are read, not while objects are.
        objects: The object store.
        grant: The right to read the experiment.
        query: Which series are followed; its `start` applies if `since` is empty.
        kind: Data class of the series.
        since: The change cursor, or None to begin.
        points_max: Maximum points in the change set.

    Raises:
        MalformedRequest, Invalid: `since` is not a change cursor, or one for other series.
        TooLarge: more series are selected than one cursor can follow.
        NotFound: the experiment has been deleted.
    """
    selection = query.to_selection(DATA_CLASSES[kind])
    with database.snapshot(grant) as db:
        if not since and query.start == "now":
            return changes.cursor_at_head(db, grant, selection)
        change_set = changes.read_changes(db, grant, selection, since or None, points_max)

    loaded = [
        replace(new_points, points=load_sample(objects, new_points.points))
        for new_points in change_set.series
    ]
    return replace(change_set, series=loaded)


def changes_as_json(change_set: ChangeSet) -> Json:
    """Return the JSON of a change set, as both `/new` and `/tail` send it."""
    points: Json = {}
    for new_points in change_set.series:
        label = new_points.label
        points.setdefault(label.run, {})[label.tag] = _series_as_json(new_points)
    return {
        "cursor": change_set.cursor,
        "more": change_set.has_more,
        "removed": change_set.removed,
        "points": points,
    }


def _series_as_json(new_points: NewPoints) -> Json:
    return {
        "series_id": new_points.series_id,
        "plugin": new_points.label.plugin,
        "replaces_from": new_points.replaces_from,
        "steps": np.ascontiguousarray(new_points.points.steps),
        "wall_times": np.ascontiguousarray(new_points.points.wall_times),
        "values": sample_values(new_points.points),
    }
