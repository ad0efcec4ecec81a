"""The change feed of an experiment: what changed since a cursor, with every point returned once.

Every function needs a snapshot (`Database.snapshot`), so that a cursor and the points returned with
it describe the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import NotFound, TooLarge
from tbservice.experiment_values import UploadStatus
from tbservice.experiments.tables import experiments, uploads
from tbservice.reading import change_cursor
from tbservice.reading.pending_points import choose_series, read_points
from tbservice.reading.tables import series_progress
from tbservice.reading.tables.series_progress import SeriesLabel, SeriesProgress
from tbservice.samples import Sample
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import Selection


@dataclass(frozen=True, slots=True)
class NewPoints:
    """New points of one series, in step order.

    When `replaces_from` is a step, they replace all points that the client has from this step on
    (inclusive); when it is None, they are appended.
    """

    series_id: int
    label: SeriesLabel
    replaces_from: int | None
    points: Sample


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes since a cursor, and the cursor after them.

    `has_more` is true when further changes were available already. `removed` contains the ids of
    deleted series; a series that is deleted and created again gets another id.
    """

    cursor: str
    has_more: bool
    removed: Sequence[int]
    series: Sequence[NewPoints]


def read_changes(
    db: Connection, grant: ReadGrant, selection: Selection, since: str | None, points_max: int
) -> ChangeSet:
    """Return the next changes of the selected series after a cursor.

    Args:
        db: Connection in a snapshot.
        grant: Experiment to read.
        selection: Series to follow; must name one data class.
        since: Cursor of the previous change set of the same selection; None for the beginning.
        points_max: Maximum number of points. Tensors are also limited to `CHANGES_BYTES_MAX` bytes,
            but a change set has at least one point if any is pending.

    Raises:
        MalformedRequest: `since` is not a cursor.
        Invalid: `since` is a cursor of another selection or experiment.
        TooLarge: More than `CURSOR_SERIES_ITEMS_MAX` series are selected.
        NotFound: The experiment has been deleted.
    """
    version = _get_version(db, grant)
    selection_digest = change_cursor.selection_digest(grant.experiment_id, selection)
    before = None if since is None else change_cursor.decode(since, selection_digest)
    # Nothing has changed: the usual answer to a client that asks every second, without listing
    # series.
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
    replaced_from = {
        series.series_id: series.first_step for series in series_to_read if series.is_replacing
    }
    new_points = [
        NewPoints(id_, labels[id_], replaced_from.get(id_), points)
        for id_, points in read.samples.items()
    ]
    has_more = cursor.version == change_cursor.INCOMPLETE
    return ChangeSet(change_cursor.encode(cursor), has_more, pending.removed.tolist(), new_points)


def cursor_at_head(db: Connection, grant: ReadGrant, selection: Selection) -> ChangeSet:
    """Return an empty change set, with a cursor after all existing points.

    Raises as `read_changes`.
    """
    version = _get_version(db, grant)
    selection_digest = change_cursor.selection_digest(grant.experiment_id, selection)
    head = change_cursor.head(_list_progress(db, grant, selection), version, selection_digest)
    return ChangeSet(change_cursor.encode(head), has_more=False, removed=[], series=[])


def list_versions(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, int]:
    """Return the versions of the existing ones of these experiments, all of one workspace."""
    return experiments.list_versions(db, experiment_ids)


def list_statuses(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, UploadStatus]:
    """Return how the uploads of these experiments, all of one workspace, are; none without any."""
    return uploads.find_statuses(db, experiment_ids)


def _get_version(db: Connection, grant: ReadGrant) -> int:
    versions = experiments.list_versions(db, [grant.experiment_id])
    if not versions:
        raise NotFound("the experiment has been deleted")
    return versions[grant.experiment_id]


def _list_progress(db: Connection, grant: ReadGrant, selection: Selection) -> SeriesProgress:
    series_max = limits.CURSOR_SERIES_ITEMS_MAX
    # One more than permitted, to know that there are more.
    progress = series_progress.list_progress(db, grant.experiment_id, selection, series_max + 1)
    if len(progress) > series_max:
        raise TooLarge(
            f"more than {series_max} series are selected, the limit of one change cursor "
            "(cursor_series_items_max); follow fewer runs, tags or plugins"
        )
    return progress
