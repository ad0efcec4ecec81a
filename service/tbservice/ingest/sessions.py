"""Set the hyperparameters and the status of sessions, as their training scripts would have logged.

TensorBoard's HParams plugin keeps all of it in the summary metadata of two series of the run: see
`session_records`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Conflict, TooLarge
from tbservice.ingest import run_names
from tbservice.ingest.batch import SentSeries
from tbservice.ingest.decode_points import check_name
from tbservice.ingest.door import PointWriter
from tbservice.ingest.series_updates import IncomingBySeries, SeriesUpdate
from tbservice.ingest.session_records import (
    START_FIELDS,
    SessionFields,
    encode_metadata,
    make_content,
    make_series,
    parse_metadata,
)
from tbservice.series.tables import runs_tags, series_rows
from tbservice.series.tables.series_rows import SeriesKey
from tbservice.types.grants import AppendGrant
from tbwire.hparams import SESSION_END_TAG, SESSION_START_TAG
from tbwire.hparams_pb2 import HParamsPluginData, SessionStartInfo
from tbwire.points import DataClass
from tbwire.tag_owners import HPARAMS, belongs_to_owner


def write_session(
    writer: PointWriter,
    grant: AppendGrant,
    run: str,
    fields: SessionFields,
    wall_time: float,
    *,
    only_if_absent: bool = False,
) -> bool:
    """Set the fields in the caller's transaction, and return whether that changes anything.

    Creates the run if necessary. Repeating it writes nothing. Fields that are set replace logged
    and earlier values; all others are kept. Hyperparameters are united with the stored ones by
    `tbwire.hparams_union`: those that are set have `wall_time`, or the next one after the newest
    stored record's if that is later, as with clocks that differ. So they replace what the run has;
    what a script logs later replaces them, and what it logged before and sends late does not. The
    start itself keeps the time at which a script logged it: setting hyperparameters starts no
    session.

    Args:
        writer: A transaction of the grant's workspace.
        grant: The right to append to the experiment.
        run: The run's name.
        fields: Fields to set.
        wall_time: The present, in seconds since the epoch.
        only_if_absent: Write nothing if the run has a session.

    Raises:
        TooLarge: A name, the number of hyperparameters, or all of them together are over a limit.
        Invalid: The run's name contains a NUL.
        Conflict: Another plugin has one of the tags in this run, the run was deleted
            (`run_deleted`), or there are too many (`experiment_full`).
        NotFound: The experiment was deleted.
    """
    check_name("a run's name", run)
    run_id = run_names.resolve_runs(writer.db, grant, [run])[run]
    run_names.check_room(writer.db, grant)
    if only_if_absent:
        start = (run_id, runs_tags.hash_name(SESSION_START_TAG))
        if start in series_rows.find(writer.db, grant.experiment_id, [start]):
            return False
    changed = plan_sessions(writer, grant, {run_id: fields}, wall_time, are_logged=False)
    if changed:
        writer.write(grant, changed)
    return bool(changed)


def plan_sessions(
    writer: PointWriter,
    grant: AppendGrant,
    sessions: Mapping[int, SessionFields],
    wall_time: float,
    others: IncomingBySeries | None = None,
    *,
    are_logged: bool = True,
    skip_misfits: bool = False,
) -> list[SeriesUpdate]:
    """Lock or create the series of several sessions and return what changes, not written yet.

    With as many statements as for one. Each is set as by `write_session`, unless
    `are_logged`: then the sessions begin or continue at the wall time.

    Args:
        writer: A transaction of the grant's workspace, which has locked the runs (`resolve_runs`).
        grant: The right to append to the experiment.
        sessions: Fields to set, by run id; may be empty.
        wall_time: The present, in seconds since the epoch.
        others: Points of other series to be written with them, locked in the same order: two
            transactions that lock in several steps could deadlock.
        are_logged: Whether what is set counts as logged at the wall time, also as new data.
        skip_misfits: Leave out what cannot be stored, instead of raising an error.

    Raises:
        TooLarge: The number of hyperparameters of a session, or all together are over a limit.
        Conflict: Another plugin has one of the tags in a run.
    """
    keys = {
        (run_id, runs_tags.hash_name(tag)): (run_id, tag)
        for run_id, fields in sessions.items()
        for tag in (
            (SESSION_START_TAG, SESSION_END_TAG) if fields.has_end else (SESSION_START_TAG,)
        )
    }
    db = writer.db
    later = _set_start_times(db, grant, sessions, keys, wall_time)
    incoming: dict[SeriesKey, Sequence[SentSeries]] = dict(others or {})
    for key, (run_id, tag) in keys.items():
        _check_names(sessions[run_id])
        content = make_content(tag, HParamsPluginData(), sessions[run_id])
        incoming[key] = [make_series(tag, content, later[run_id], is_set=not are_logged)]
    updates = writer.plan(grant, incoming)
    if not keys:
        return updates

    tag_ids = runs_tags.resolve_tags(db, grant, list({tag for _, tag in keys.values()}))
    tags = {tag_id: tag for tag, tag_id in tag_ids.items()}
    of_sessions = [update for update in updates if update.row.tag_id in tags]
    if skip_misfits:
        of_sessions = [update for update in of_sessions if update.accepted]
    changed = _unite_with_stored(db, grant, tags, of_sessions, sessions, are_logged=are_logged)
    return changed + [update for update in updates if update.row.tag_id not in tags]


def _set_start_times(
    db: Connection,
    grant: AppendGrant,
    run_ids: Iterable[int],
    keys: Mapping[SeriesKey, tuple[int, str]],
    wall_time: float,
) -> dict[int, float]:
    """Set the start times of the runs; return the wall time of what is written of each.

    That is the present, or the next one after all that are stored of the run's session, if that is
    later. Not an equal one: then the order of arrival would decide, and `tbupload verify` could not
    tell.
    """
    later = dict.fromkeys(run_ids, wall_time)
    if not later:
        return later
    for key, time in series_rows.find(db, grant.experiment_id, keys).items():
        next_one = min(float(np.nextafter(time, np.inf)), sys.float_info.max)
        later[key[0]] = max(later[key[0]], next_one)
    # Before the series are locked, as by a batch: in another order the two could deadlock.
    times = [wall_time] * len(later)
    runs_tags.set_start_times(db, grant.experiment_id, list(later), times, [None] * len(times))
    return later


def _check_names(fields: SessionFields) -> None:
    for name in fields.hparams:
        if len(name) > limits.NAME_CHARS_MAX:
            limit = f"{limits.NAME_CHARS_MAX} characters (name_chars_max)"
            raise TooLarge(f"hparams: a name has at most {limit}; {name[:50]!r}… has {len(name)}")


def _unite_with_stored(
    db: Connection,
    grant: AppendGrant,
    tags: Mapping[int, str],
    updates: Sequence[SeriesUpdate],
    sessions: Mapping[int, SessionFields],
    *,
    are_logged: bool,
) -> list[SeriesUpdate]:
    """Return the updates that change something.

    `plan_update` has united the start with the stored one; the end is made of the stored one here.
    The rows of the series are locked; `tags` are their names by id. Raises Conflict and TooLarge.
    """
    known = [update.series_id for update in updates if not update.is_new]
    bytes_max = len(known) * limits.METADATA_BYTES_MAX  # all that there can be
    stored = series_rows.read_metadata(db, grant.experiment_id, known, bytes_max) if known else {}

    changed: list[SeriesUpdate] = []
    restarted: set[int] = set()
    for update in sorted(updates, key=lambda each: tags[each.row.tag_id] == SESSION_END_TAG):
        _check_accepted(update)
        is_start, run_id = tags[update.row.tag_id] == SESSION_START_TAG, update.row.run_id
        if not update.is_new:
            before = parse_metadata(stored[update.series_id])
            if is_start:
                is_same = update.metadata is None or _has_same_start(
                    before, parse_metadata(update.metadata)
                )
            else:
                update.metadata = encode_metadata(
                    make_content(SESSION_END_TAG, before, sessions[run_id])
                )
                is_same = update.metadata == encode_metadata(
                    make_content(SESSION_END_TAG, before, SessionFields())
                )
                # An end that is older than its start would be that of an earlier attempt.
                is_same &= run_id not in restarted
            if is_same:
                continue
        if is_start and are_logged:
            restarted.add(run_id)
        changed.append(update)
    return changed


def _check_accepted(update: SeriesUpdate) -> None:
    if update.accepted:
        return
    reason = update.skipped[0][1]
    owner = (update.row.plugin, update.row.data_class)
    if belongs_to_owner((HPARAMS, DataClass.TENSOR), owner):
        raise TooLarge(f"hparams: {reason} (metadata_bytes_max)")
    raise Conflict(f"{reason}: delete that series, or use another run")


def _has_same_start(before: HParamsPluginData, after: HParamsPluginData) -> bool:
    """Return whether all but wall times is equal. Raises TooLarge for too many hyperparameters."""
    old, new = before.session_start_info, after.session_start_info
    old_values, new_values = _encode_values(old), _encode_values(new)
    if len(new_values) > max(len(old_values), limits.SESSION_HPARAMS_ITEMS_MAX):
        limit = f"{limits.SESSION_HPARAMS_ITEMS_MAX} hyperparameters (session_hparams_items_max)"
        raise TooLarge(f"hparams: a session has at most {limit}; this would have {len(new_values)}")
    return old_values == new_values and all(
        getattr(old, name) == getattr(new, name) for name in START_FIELDS
    )


def _encode_values(info: SessionStartInfo) -> dict[str, bytes]:
    return {entry.key: entry.value.SerializeToString() for entry in info.hparams}
