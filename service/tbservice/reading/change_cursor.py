"""The cursor of one who reads what is new: how far it has come in each series, as a text that the reader keeps.

A cursor is data and no right: what it says is looked up under the reader's grant, so that a forged one shows nothing
that its owner could not read anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest
from tbservice.store.series_progress import SeriesProgress
from tbservice.types import ExperimentId, Int64s, Selection

_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<Bq8s")
_COLUMNS: Final = 3
_STEP_MIN: Final = -(2**63)
_STEP_MAX: Final = 2**63 - 1

INCOMPLETE: Final = -1
"""The `version` of a cursor behind which there is more already."""


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """What a reader has: everything up to `last_steps` of each series, ids ascending, as of so many `rewrites`.

    `version` is the experiment's when there was no more than that, `selection_digest` tells which series are followed.
    """

    version: int
    selection_digest: bytes
    series_ids: Int64s
    rewrites: Int64s
    last_steps: Int64s


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """What a reader is missing: columns of the series with new points, and the ids of those that are gone.

    `indices` are indices into the SeriesProgress. Of each series all points from step `first_steps` on are to be sent; where
    `is_replacing`, the reader has some of these steps, and puts the new points in the place of all of them.
    """

    indices: Int64s
    first_steps: Int64s
    is_replacing: npt.NDArray[np.bool_]
    removed: Int64s


def selection_digest(experiment_id: ExperimentId, selection: Selection) -> bytes:
    """Eight bytes that tell what is followed: a cursor says nothing of other series."""
    parts: list[str] = [experiment_id, str(selection.plugin), str(selection.data_class)]
    for names in (selection.runs, selection.tags):
        parts += (
            ["*"]
            if names is None
            else [hashlib.sha256(name.encode()).hexdigest() for name in sorted(names)]
        )
        parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).digest()[:8]


def encode(cursor: ChangeCursor) -> str:
    """The cursor as text of letters, digits, `-` and `_`."""
    columns = (cursor.series_ids, cursor.rewrites, cursor.last_steps)
    content = _HEAD.pack(_FORMAT, cursor.version, cursor.selection_digest) + b"".join(
        map(_to_byte_planes, columns)
    )
    return base64.urlsafe_b64encode(zlib.compress(content)).decode().rstrip("=")


def decode(text: str, selection: bytes) -> ChangeCursor:
    """The cursor that `encode` wrote. Raises MalformedRequest when it is none, Invalid when it is of another selection."""
    try:
        content = _inflate(
            base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        )
        format_version, version, selected = _HEAD.unpack_from(content)
        columns = np.frombuffer(content, np.uint8, offset=_HEAD.size).reshape(_COLUMNS, -1)
        series_ids, rewrites, last_steps = map(_from_byte_planes, columns)
    except (binascii.Error, zlib.error, struct.error, ValueError) as error:
        raise MalformedRequest("'since' is not a cursor of an earlier answer") from error
    if format_version != _FORMAT or not _is_ascending(series_ids):
        raise MalformedRequest("'since' is not a cursor of an earlier answer")
    if selected != selection:
        raise Invalid(
            "'since' is a cursor of other series or another experiment: begin without one"
        )
    return ChangeCursor(version, selected, series_ids, rewrites, last_steps)


def _is_ascending(numbers: Int64s) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))


def _to_byte_planes(column: Int64s) -> bytes:
    """Differences, all their lowest bytes first: series that go together compress to almost nothing."""
    differences = np.diff(column, prepend=np.zeros(1, np.int64)).astype("<i8")
    return differences.view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_byte_planes(planes: npt.NDArray[np.uint8]) -> Int64s:
    differences = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8").reshape(-1)
    return np.cumsum(differences, dtype=np.int64)


def _inflate(data: bytes) -> bytes:
    """The bytes, unless they grow over what a cursor may have, or are not whole. Raises ValueError, zlib.error."""
    bytes_max = _HEAD.size + _COLUMNS * 8 * limits.CURSOR_SERIES_ITEMS_MAX
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, bytes_max)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("not one whole stream, or too large")
    return content


def find_pending(progress: SeriesProgress, cursor: ChangeCursor | None) -> PendingChanges:
    """What a reader with this cursor is missing of series that have come so far.

    Points come behind a series' last step, but for those that its `rewrites` count: these are at `rewritten_from` or
    behind it. So a reader who has seen fewer of them goes back to that step, and any other goes on where it is.
    """
    if cursor is None:
        places = np.arange(len(progress))
        return PendingChanges(
            places, np.full(len(progress), _STEP_MIN), places < 0, np.empty(0, np.int64)
        )
    is_known, places = _find_indices(progress.series_ids, cursor.series_ids)
    last_steps = _take_or_zero(cursor.last_steps, is_known, places)
    is_rewritten = is_known & (
        progress.rewrites != _take_or_zero(cursor.rewrites, is_known, places)
    )
    behind = np.where(last_steps < _STEP_MAX, last_steps, _STEP_MAX - 1) + 1
    firsts = np.where(is_rewritten, np.minimum(progress.rewritten_from, behind), behind)
    firsts[~is_known] = _STEP_MIN
    chosen = np.flatnonzero(~is_known | is_rewritten | (progress.last_steps > last_steps))
    replaces = is_known & (firsts <= last_steps)
    is_there, _ = _find_indices(cursor.series_ids, progress.series_ids)
    return PendingChanges(chosen, firsts[chosen], replaces[chosen], cursor.series_ids[~is_there])


def advance(
    progress: SeriesProgress,
    before: ChangeCursor | None,
    pending: PendingChanges,
    complete_count: int,
    cut_step: int | None,
    head_cursor: ChangeCursor,
) -> ChangeCursor:
    """The cursor of a reader who was sent the first `complete_count` of the unread series, and the next one up to `cut_step`.

    `head_cursor` is the cursor of one who has everything. Of series that were not reached it says what the one before said.
    """
    waiting = pending.indices[complete_count:]
    if not len(waiting):
        return head_cursor
    rewrites, last_steps = head_cursor.rewrites.copy(), head_cursor.last_steps.copy()
    is_kept = np.ones(len(progress), np.bool_)
    if before is not None:
        is_known, places = _find_indices(progress.series_ids[waiting], before.series_ids)
        rewrites[waiting] = _take_or_zero(before.rewrites, is_known, places)
        last_steps[waiting] = _take_or_zero(before.last_steps, is_known, places)
        is_kept[waiting] = is_known
    else:
        is_kept[waiting] = False
    if cut_step is not None:
        first = waiting[0]
        rewrites[first], last_steps[first], is_kept[first] = (
            head_cursor.rewrites[first],
            cut_step,
            True,
        )
    columns = (head_cursor.series_ids[is_kept], rewrites[is_kept], last_steps[is_kept])
    return ChangeCursor(INCOMPLETE, head_cursor.selection_digest, *columns)


def head(progress: SeriesProgress, version: int, selection: bytes) -> ChangeCursor:
    """The cursor of one who has all there is."""
    return ChangeCursor(
        version, selection, progress.series_ids, progress.rewrites, progress.last_steps
    )


def _find_indices(wanted: Int64s, among: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Which of the wanted numbers are among those, which ascend, and where."""
    if not len(among):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    places = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return among[places] == wanted, places


def _take_or_zero(column: Int64s, is_known: npt.NDArray[np.bool_], places: Int64s) -> Int64s:
    """The column's numbers at these places, 0 where a series is not known."""
    taken = np.zeros(len(places), np.int64)
    taken[is_known] = column[places[is_known]]
    return taken
