"""What is new since a reader's cursor, in portions: every point once, whatever came in which order.

Every function wants a snapshot (`Database.snapshot`): the cursor and the points it speaks of are of one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import NotFound, TooLarge
from tbservice.reading import change_cursor
from tbservice.reading.pending_points import Sample, choose_series, read_points
from tbservice.store import experiments, series_progress
from tbservice.store.series_progress import SeriesLabel, SeriesProgress
from tbservice.types import ExperimentId, ReadGrant, Selection


@dataclass(frozen=True, slots=True)
class NewPoints:
    """New points of one series, in step order.

    With `replaces_from`, they take the place of all points that the reader has from that step on; without, they come
    after those it has.
    """

    series_id: int
    label: SeriesLabel
    replaces_from: int | None
    points: Sample


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A portion of what is new; `has_more` when the next one is there already. `removed` are the ids of deleted series.

    A series that was deleted and made again has another id.
    """

    cursor: str
    has_more: bool
    removed: Sequence[int]
    series: Sequence[NewPoints]


def read_changes(
    db: Connection, grant: ReadGrant, selection: Selection, since: str | None, points_max: int
) -> ChangeSet:
    """What a reader with the cursor `since` is missing of the selected series, from the beginning with None.

    `selection` names one data class. At most `points_max` points and `CHANGES_BYTES_MAX` bytes of tensors, but one point
    at least when there is any. Raises MalformedRequest or Invalid for a cursor that is none or of other series, TooLarge for
    more than `CURSOR_SERIES_ITEMS_MAX` series, NotFound when the experiment has been deleted.
    """
    version, selection_digest = (
        _get_version(db, grant),
        change_cursor.selection_digest(grant.experiment_id, selection),
    )
    before = None if since is None else change_cursor.decode(since, selection_digest)
    if since is not None and before is not None and before.version == version:
        return ChangeSet(since, has_more=False, removed=[], series=[])
    progress = _list_progress(db, grant, selection)
    pending = change_cursor.find_pending(progress, before)
    series_to_read = choose_series(progress, pending, points_max)
    read = read_points(db, grant, selection.data_class, series_to_read, points_max)
    head = change_cursor.head(progress, version, selection_digest)
    cursor = change_cursor.advance(
        progress, before, pending, read.complete_count, read.cut_step, head
    )
    labels = series_progress.get_labels(db, grant.experiment_id, list(read.samples))
    replaced = {one.series_id: one.first_step for one in series_to_read if one.is_replacing}
    series = [
        NewPoints(id_, labels[id_], replaced.get(id_), points)
        for id_, points in read.samples.items()
    ]
    is_incomplete = cursor.version == change_cursor.INCOMPLETE
    return ChangeSet(change_cursor.encode(cursor), is_incomplete, pending.removed.tolist(), series)


def cursor_at_head(db: Connection, grant: ReadGrant, selection: Selection) -> ChangeSet:
    """The cursor of a reader who wants only what comes from now on. Raises as `read_changes`."""
    version, selection_digest = (
        _get_version(db, grant),
        change_cursor.selection_digest(grant.experiment_id, selection),
    )
    head = change_cursor.head(_list_progress(db, grant, selection), version, selection_digest)
    return ChangeSet(change_cursor.encode(head), has_more=False, removed=[], series=[])


def list_versions(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, int]:
    """The version of each of these experiments of one workspace; those that are gone are left out."""
    return experiments.list_versions(db, experiment_ids)


def _get_version(db: Connection, grant: ReadGrant) -> int:
    found = experiments.list_versions(db, [grant.experiment_id])
    if not found:
        raise NotFound("the experiment has been deleted")
    return found[grant.experiment_id]


def _list_progress(db: Connection, grant: ReadGrant, selection: Selection) -> SeriesProgress:
    series_max = limits.CURSOR_SERIES_ITEMS_MAX
    progress = series_progress.list_progress(db, grant.experiment_id, selection, series_max + 1)
    if len(progress) > series_max:
        raise TooLarge(
            f"more than {series_max} series are selected, the limit of what one cursor follows "
            "(cursor_series_items_max); follow fewer runs, tags or plugins at a time"
        )
    return progress
