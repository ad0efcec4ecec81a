"""Which tags each run has, for experiments with so many series that they are not looked at one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from tbservice.store import runs_tags, time_series
from tbservice.store.time_series import LastPoint, TagGroupRow
from tbservice.types import DataClass, ReadGrant, Selection


@dataclass(frozen=True, slots=True)
class TagGroup:
    """Tags, in code point order, of a run's series that share plugin, data class and summary metadata.

    `lengths_max`, as long as `tags`, is the length of each series' longest blob sequence. Groups with the same tags
    have the same tuple, so that telling them apart is cheap.
    """

    run: str
    plugin: str
    data_class: DataClass
    summary_metadata: bytes
    tags: tuple[str, ...]
    lengths_max: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TagGroupRows:
    """What `group_tags` makes groups of: the names of runs and tags by their ids, and the rows that hold the ids."""

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

    Apart from `read_tag_group_rows`, because it takes as long as the queries and needs no database connection.
    """
    # An array: numpy would convert a list again in every call below.
    tag_ids, tag_names = np.array(list(group_rows.tags), np.int64), list(group_rows.tags.values())
    place = np.empty(len(tag_names), np.int64)  # of each tag in code point order
    in_order = sorted(range(len(tag_names)), key=tag_names.__getitem__)
    place[in_order] = np.arange(len(tag_names))
    known: dict[bytes, tuple[str, ...]] = {}
    groups = []
    for row in group_rows.rows:
        places = place[np.searchsorted(tag_ids, row.tag_ids)]
        order = np.argsort(places)
        key = places[order].tobytes()
        if key not in known:
            known[key] = tuple(tag_names[in_order[at]] for at in places[order].tolist())
        lengths = tuple(row.lengths_max[order].tolist())
        run = group_rows.runs[row.run_id]
        groups.append(
            TagGroup(run, row.plugin, row.data_class, row.summary_metadata, known[key], lengths)
        )
    return groups


def list_last_points(db: Connection, grant: ReadGrant, selection: Selection) -> list[LastPoint]:
    """The point with the greatest step of each of the selected scalar series; no points are read for it."""
    return time_series.list_last_points(db, grant.experiment_id, selection)


def list_tags_by_run(db: Connection, grant: ReadGrant) -> dict[str, list[str]]:
    """The tags of each run that has any, runs and tags in the order in which they came."""
    runs = runs_tags.list_run_names(db, grant.experiment_id)
    tags = runs_tags.list_tag_names(db, grant.experiment_id)
    tag_ids, tag_names = np.array(list(tags), np.int64), list(tags.values())
    order = np.argsort(tag_ids)
    tags_by_run = {}
    for run_id, ids in time_series.list_tag_ids(db, grant.experiment_id).items():
        places = order[np.searchsorted(tag_ids[order], np.sort(ids))]
        tags_by_run[runs[run_id]] = [tag_names[place] for place in places.tolist()]
    return tags_by_run
