"""Set the hyperparameters and the status of a session, as its training script would have logged.

TensorBoard's HParams plugin keeps all of it in the summary metadata of two series of the run. The
encoding is that of `tensorboard/plugins/hparams/metadata.py` and `summary_v2.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import NULL_VALUE, Value
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Conflict, TooLarge
from tbservice.ingest import commit, series_writer
from tbservice.ingest.batch import SentMetadata, SentSeries
from tbservice.ingest.decode_points import check_name
from tbservice.ingest.series_updates import IncomingBySeries, IncomingPoints, SeriesUpdate
from tbservice.samples import TensorValue
from tbservice.store import runs_tags, series_rows
from tbservice.store.series_rows import SeriesKey
from tbservice.types import AppendGrant, HparamValue, SessionStatus
from tbwire import tensors
from tbwire.hparams_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
from tbwire.points import DataClass, TensorPoints
from tbwire.tag_owners import HPARAMS, belongs_to_owner
from tbwire.tensorboard_pb2 import DATA_CLASS_TENSOR, SummaryMetadata

EXPERIMENT_TAG: Final = "_hparams_/experiment"
START_TAG: Final = "_hparams_/session_start_info"
END_TAG: Final = "_hparams_/session_end_info"
"""The tags of the plugin in TensorBoard's `metadata.py`"""

_START_FIELDS: Final = ("model_uri", "monitor_url", "group_name", "start_time_secs")

_STEP: Final = 0

_NULL_TENSOR: Final = TensorValue(tensors.FLOAT, (0,), b"")
"""NULL_TENSOR in `metadata.py`: the value of a series with its content in the metadata."""


@dataclass(frozen=True, slots=True)
class SessionFields:
    """What to set of a session; hyperparameters that are not named, and None, keep what it has.

    So do empty texts, and times of 0: in TensorBoard's messages, these are absent. Times are
    seconds since the epoch.
    """

    hparams: Mapping[str, HparamValue] = field(default_factory=dict)
    group_name: str | None = None
    model_uri: str | None = None
    monitor_url: str | None = None
    start_time_secs: float | None = None
    status: SessionStatus | None = None
    end_time_secs: float | None = None

    @property
    def has_end(self) -> bool:
        """Return whether something is to be set that is logged at the end of a session."""
        return self.status is not None or bool(self.end_time_secs)


def write_session(
    db: Connection,
    grant: AppendGrant,
    run: str,
    fields: SessionFields,
    wall_time: float,
    *,
    only_if_absent: bool = False,
) -> list[SeriesUpdate]:
    """Set the fields in the caller's transaction, and return what was written of each series.

    Creates the run if necessary. Repeating it writes nothing. What is set replaces what was logged
    or set before; what is not set is kept. Hyperparameters are united with the stored ones by
    `tbwire.hparams_union`: those that are set have `wall_time`, or that of the newest stored record
    if that is later, as with clocks that differ. So they replace what the run has; what a script
    logs later replaces them, and what it logged before and sends late does not.

    Args:
        db: A transaction of the grant's workspace.
        grant: The right to append to the experiment.
        run: The run's name.
        fields: What to set.
        wall_time: The present, in seconds since the epoch.
        only_if_absent: Write nothing if the run has a session.

    Raises:
        TooLarge: A name, the number of hyperparameters, or all of them together are over a limit.
        Invalid: The run's name contains a NUL.
        Conflict: Another plugin has one of the tags in this run.
        NotFound: The experiment was deleted.
    """
    check_name("a run's name", run)
    run_id = runs_tags.resolve_runs(db, grant, [run])[run]
    if only_if_absent:
        start = (run_id, runs_tags.hash_name(START_TAG))
        if start in series_rows.find(db, grant.experiment_id, [start]):
            return []
    changed = plan_sessions(db, grant, {run_id: fields}, wall_time)
    if changed:
        commit.write_updates(db, grant, changed)
    return changed


def plan_sessions(
    db: Connection,
    grant: AppendGrant,
    sessions: Mapping[int, SessionFields],
    wall_time: float,
    others: IncomingBySeries | None = None,
    *,
    skip_misfits: bool = False,
) -> list[SeriesUpdate]:
    """Lock or create the series of several sessions and return what changes, not written yet.

    With as many statements as for one. What is set of each is as in `write_session`.

    Args:
        db: A transaction of the grant's workspace, which has locked the runs (`resolve_runs`).
        grant: The right to append to the experiment.
        sessions: What to set, by run id; may be empty.
        wall_time: The present, in seconds since the epoch.
        others: Points of other series to be written with them, locked in the same order: two
            transactions that lock in several steps could deadlock.
        skip_misfits: Leave out what cannot be stored, instead of raising an error.

    Raises:
        TooLarge: The number of hyperparameters of a session, or all together are over a limit.
        Conflict: Another plugin has one of the tags in a run.
    """
    keys = {
        (run_id, runs_tags.hash_name(tag)): (run_id, tag)
        for run_id, fields in sessions.items()
        for tag in ((START_TAG, END_TAG) if fields.has_end else (START_TAG,))
    }
    newest = _set_start_times(db, grant, sessions, keys, wall_time)
    incoming: dict[SeriesKey, Sequence[IncomingPoints]] = dict(others or {})
    for key, (run_id, tag) in keys.items():
        _check_names(sessions[run_id])
        content = _make_content(tag, HParamsPluginData(), sessions[run_id])
        incoming[key] = [IncomingPoints(make_series(tag, content, newest[run_id]))]
    updates = series_writer.lock_or_create(db, grant, incoming) if incoming else []
    if not keys:
        return updates

    tag_ids = runs_tags.resolve_tags(db, grant, list({tag for _, tag in keys.values()}))
    tags = {tag_id: tag for tag, tag_id in tag_ids.items()}
    of_sessions = [update for update in updates if update.state.tag_id in tags]
    if skip_misfits:
        of_sessions = [update for update in of_sessions if update.accepted]
    changed = _unite_with_stored(db, grant, tags, of_sessions, sessions)
    return changed + [update for update in updates if update.state.tag_id not in tags]


def _set_start_times(
    db: Connection,
    grant: AppendGrant,
    run_ids: Iterable[int],
    keys: Mapping[SeriesKey, tuple[int, str]],
    wall_time: float,
) -> dict[int, float]:
    """Set the start times of the runs; return the wall time of what is written of each.

    That is the present, or the newest stored one of the run's session.
    """
    newest = dict.fromkeys(run_ids, wall_time)
    if not newest:
        return newest
    for key, time in series_rows.find(db, grant.experiment_id, keys).items():
        newest[key[0]] = max(newest[key[0]], time)
    # Before the series are locked, as by a batch: in another order the two could deadlock.
    times = [wall_time] * len(newest)
    runs_tags.set_start_times(db, grant.experiment_id, list(newest), times)
    return newest


def _check_names(fields: SessionFields) -> None:
    for name in fields.hparams:
        if len(name) > limits.NAME_CHARS_MAX:
            limit = f"{limits.NAME_CHARS_MAX} characters (name_chars_max)"
            raise TooLarge(f"hparams: a name has at most {limit}; {name[:50]!r}… has {len(name)}")


def make_series(tag: str, content: HParamsPluginData, wall_time: float) -> SentSeries:
    """Return a series of the plugin with its one point, whose value is a placeholder.

    Raises TooLarge.
    """
    points = TensorPoints(np.array([_STEP]), np.array([wall_time]), [_NULL_TENSOR])
    return SentSeries(tag, SentMetadata(HPARAMS, DataClass.TENSOR, _encode(content)), points)


def _unite_with_stored(
    db: Connection,
    grant: AppendGrant,
    tags: Mapping[int, str],
    updates: Sequence[SeriesUpdate],
    sessions: Mapping[int, SessionFields],
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
    for update in sorted(updates, key=lambda each: tags[each.state.tag_id] == END_TAG):
        _check_accepted(update)
        is_start, run_id = tags[update.state.tag_id] == START_TAG, update.state.run_id
        if not update.is_new:
            before = _parse(stored[update.series_id])
            if is_start:
                is_same = update.metadata is None or _has_same_start(
                    before, _parse(update.metadata)
                )
            else:
                update.metadata = _encode(_make_content(END_TAG, before, sessions[run_id]))
                is_same = update.metadata == _encode(
                    _make_content(END_TAG, before, SessionFields())
                )
                # An end that is older than its start would be that of an earlier attempt.
                is_same &= run_id not in restarted
            if is_same:
                continue
        if is_start:
            restarted.add(run_id)
        changed.append(update)
    return changed


def _check_accepted(update: SeriesUpdate) -> None:
    if update.accepted:
        return
    reason = update.skipped[0][1]
    owner = (update.state.plugin, update.state.data_class)
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
        getattr(old, name) == getattr(new, name) for name in _START_FIELDS
    )


def _encode_values(info: SessionStartInfo) -> dict[str, bytes]:
    return {entry.key: entry.value.SerializeToString() for entry in info.hparams}


def _make_content(tag: str, stored: HParamsPluginData, fields: SessionFields) -> HParamsPluginData:
    """Return a start with the fields only, or the stored end with the fields set."""
    if tag == START_TAG:
        return HParamsPluginData(session_start_info=_make_start(fields))
    return HParamsPluginData(session_end_info=_set_end(stored.session_end_info, fields))


def _encode(content: HParamsPluginData) -> bytes:
    """Return summary metadata. Raises TooLarge."""
    metadata = SummaryMetadata(data_class=DATA_CLASS_TENSOR)
    metadata.plugin_data.plugin_name = HPARAMS
    metadata.plugin_data.content = content.SerializeToString()
    serialized = metadata.SerializeToString()
    if len(serialized) > limits.METADATA_BYTES_MAX:
        limit = f"{limits.METADATA_BYTES_MAX} bytes (metadata_bytes_max)"
        raise TooLarge(
            f"hparams: all of a session have at most {limit}; this has {len(serialized)}"
        )
    return serialized


def _parse(metadata: bytes) -> HParamsPluginData:
    """Return the plugin's content; empty if a client has stored something else there."""
    content = SummaryMetadata.FromString(metadata).plugin_data.content
    try:
        return HParamsPluginData.FromString(content)
    except DecodeError:
        return HParamsPluginData()


def _make_start(fields: SessionFields) -> SessionStartInfo:
    info = SessionStartInfo(
        hparams=[
            SessionStartInfo.Hparam(key=name, value=_make_value(value))
            for name, value in fields.hparams.items()
        ]
    )
    for name in _START_FIELDS:
        if value := getattr(fields, name):
            setattr(info, name, value)
    return info


def _make_value(value: HparamValue) -> Value:
    if value is None:
        return Value(null_value=NULL_VALUE)
    if isinstance(value, bool):
        return Value(bool_value=value)
    return Value(string_value=value) if isinstance(value, str) else Value(number_value=value)


def _set_end(stored: SessionEndInfo, fields: SessionFields) -> SessionEndInfo:
    """Return a copy with the fields set; a session that runs again has no end, unless it is set."""
    info = SessionEndInfo(status=stored.status, end_time_secs=stored.end_time_secs)
    if fields.status is not None:
        info.status = fields.status
        if fields.status is SessionStatus.RUNNING:
            info.end_time_secs = 0.0
    if fields.end_time_secs:
        info.end_time_secs = fields.end_time_secs
    return info
