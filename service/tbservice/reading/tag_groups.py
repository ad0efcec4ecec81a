"""The tags of each run, for experiments with too many series to process one by one in Python."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from tbservice.series.tables import runs_tags, time_series
from tbservice.series.tables.time_series import TagGroupRow
from tbservice.types.grants import ReadGrant
from tbwire.points import DataClass


@dataclass(frozen=True, slots=True)
class TagGroup:
    """Tags of those series of a run that share plugin, data class and summary metadata.

    Tags are in code point order. `lengths_max` has the length of the longest blob sequence of each
    tag's series. Groups with equal tags share one tuple, so that they compare by identity.
    """

    run: str
    plugin: str
    data_class: DataClass
    summary_metadata: bytes
    tags: tuple[str, ...]
    lengths_max: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TagGroupRows:
    """Input of `group_tags`: names of runs and tags by id, and rows that refer to these ids."""

    runs: Mapping[int, str]
    tags: Mapping[int, str]
    rows: Sequence[TagGroupRow]


def read_tag_group_rows(
    db: Connection, grant: ReadGrant, kinds: Collection[tuple[str, DataClass]]
) -> TagGroupRows:
    """Read the series of these kinds (plugin and data class), for `group_tags`."""
    return TagGroupRows(
        runs=runs_tags.list_run_names(db, grant.experiment_id),
        tags=runs_tags.list_tag_names(db, grant.experiment_id),
        rows=time_series.list_tag_groups(db, grant.experiment_id, kinds),
    )


def group_tags(group_rows: TagGroupRows) -> list[TagGroup]:
    """Return the groups in the order of the runs, in time linear in runs, tags and series.

    Separate from `read_tag_group_rows`, as it takes as long as the queries but needs no connection.
    """
    # For all rows at once: a run of few tags takes as long as a call of numpy.
    tag_names = list(group_rows.tags.values())
    sorted_indices = sorted(range(len(tag_names)), key=tag_names.__getitem__)
    sorted_names = [tag_names[index] for index in sorted_indices]
    places = np.empty(len(tag_names), np.int64)  # of each tag in code point order
    places[sorted_indices] = np.arange(len(tag_names))
    tag_ids = np.array(list(group_rows.tags), np.int64)
    ids = np.concatenate([row.tag_ids for row in group_rows.rows] or [tag_ids])
    places = places[np.searchsorted(tag_ids, ids)]

    tuples: dict[bytes, tuple[str, ...]] = {}
    groups, start = [], 0
    for row in group_rows.rows:
        row_places = places[start : start + len(row.tag_ids)]
        start += len(row.tag_ids)
        order = row_places.argsort()
        row_places = row_places[order]
        key = row_places.tobytes()
        if key not in tuples:
            tuples[key] = tuple(map(sorted_names.__getitem__, row_places.tolist()))

        lengths = tuple(row.lengths_max[order].tolist())
        run = group_rows.runs[row.run_id]
        groups.append(
            TagGroup(run, row.plugin, row.data_class, row.summary_metadata, tuples[key], lengths)
        )
    return groups


def list_tags_by_run(db: Connection, grant: ReadGrant) -> dict[str, tuple[str, ...]]:
    """Return the tags of each run that has any; runs and tags in order of creation.

    Runs with equal tags share one tuple, as those of one program do: in Python, a million tags take
    as long as their query.
    """
    runs = runs_tags.list_run_names(db, grant.experiment_id)
    tags = runs_tags.list_tag_names(db, grant.experiment_id)  # by id
    tag_ids, tag_names = np.array(list(tags), np.int64), list(tags.values())

    tuples: dict[bytes, tuple[str, ...]] = {}
    tags_by_run = {}
    for run_id, ids in time_series.list_tag_ids(db, grant.experiment_id).items():
        indices = np.searchsorted(tag_ids, np.sort(ids))
        key = indices.tobytes()
        if key not in tuples:
            tuples[key] = tuple(tag_names[index] for index in indices.tolist())
        tags_by_run[runs[run_id]] = tuples[key]
    return tags_by_run
