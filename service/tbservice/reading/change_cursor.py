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
from tbservice.errors import Invalid, Malformed
from tbservice.store.series_progress import Progress
from tbservice.types import ExperimentId, Int64s, Selection

_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<Bq8s")
_COLUMNS: Final = 3
_STEP_MIN: Final = -(2**63)
_STEP_MAX: Final = 2**63 - 1

INCOMPLETE: Final = -1
"""The `version` of a cursor behind which there is more already."""


@dataclass(frozen=True, slots=True)
class ReadCursor:
    """What a reader has: everything up to `last_steps` of each series, ids ascending, as of so many `rewrites`.

    `version` is the experiment's when there was no more than that, `selection` tells which series are followed.
    """

    version: int
    selection: bytes
    series_ids: Int64s
    rewrites: Int64s
    last_steps: Int64s


@dataclass(frozen=True, slots=True)
class Unread:
    """What a reader is missing: columns of the series with new points, and the ids of those that are gone.

    `places` are indices into the Progress. Of each series all points from step `firsts` on are to be sent; where
    `replaces`, the reader has some of these steps, and puts the new points in the place of all of them.
    """

    places: Int64s
    firsts: Int64s
    replaces: npt.NDArray[np.bool_]
    removed: Int64s


def selection_digest(experiment_id: ExperimentId, selection: Selection) -> bytes:
    """Eight bytes that tell what is followed: a cursor says nothing of other series."""
    parts: list[str] = [experiment_id, str(selection.plugin), str(selection.data_class)]
    for names in (selection.runs, selection.tags):
        parts += ["*"] if names is None else [hashlib.sha256(name.encode()).hexdigest() for name in sorted(names)]
        parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).digest()[:8]


def encode(cursor: ReadCursor) -> str:
    """The cursor as text of letters, digits, `-` and `_`."""
    columns = (cursor.series_ids, cursor.rewrites, cursor.last_steps)
    content = _HEAD.pack(_FORMAT, cursor.version, cursor.selection) + b"".join(map(_planes, columns))
    return base64.urlsafe_b64encode(zlib.compress(content)).decode().rstrip("=")


def decode(text: str, selection: bytes) -> ReadCursor:
    """The cursor that `encode` wrote. Raises Malformed when it is none, Invalid when it is of another selection."""
    try:
        content = _inflate(base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True))
        form, version, followed = _HEAD.unpack_from(content)
        columns = np.frombuffer(content, np.uint8, offset=_HEAD.size).reshape(_COLUMNS, -1)
        series_ids, rewrites, last_steps = map(_numbers, columns)
    except (binascii.Error, zlib.error, struct.error, ValueError) as error:
        raise Malformed("'since' is not a cursor of an earlier answer") from error
    if form != _FORMAT or not _ascend(series_ids):
        raise Malformed("'since' is not a cursor of an earlier answer")
    if followed != selection:
        raise Invalid("'since' is a cursor of other series or another experiment: begin without one")
    return ReadCursor(version, followed, series_ids, rewrites, last_steps)


def _ascend(numbers: Int64s) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))


def _planes(column: Int64s) -> bytes:
    """Differences, all their lowest bytes first: series that go together compress to almost nothing."""
    differences = np.diff(column, prepend=np.zeros(1, np.int64)).astype("<i8")
    return differences.view(np.uint8).reshape(-1, 8).T.tobytes()


def _numbers(planes: npt.NDArray[np.uint8]) -> Int64s:
    differences = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8").reshape(-1)
    return np.cumsum(differences, dtype=np.int64)


def _inflate(data: bytes) -> bytes:
    """The bytes, unless they grow over what a cursor may have, or are not whole. Raises ValueError, zlib.error."""
    bytes_max = _HEAD.size + _COLUMNS * 8 * limits.cursor_series_items_max
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, bytes_max)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("not one whole stream, or too large")
    return content


def find_unread(progress: Progress, cursor: ReadCursor | None) -> Unread:
    """What a reader with this cursor is missing of series that have come so far.

    Points come behind a series' last step, but for those that its `rewrites` count: these are at `rewritten_from` or
    behind it. So a reader who has seen fewer of them goes back to that step, and any other goes on where it is.
    """
    if cursor is None:
        places = np.arange(len(progress))
        return Unread(places, np.full(len(progress), _STEP_MIN), places < 0, np.empty(0, np.int64))
    is_known, places = _find(progress.series_ids, cursor.series_ids)
    last_steps = _taken(cursor.last_steps, is_known, places)
    is_rewritten = is_known & (progress.rewrites != _taken(cursor.rewrites, is_known, places))
    behind = np.where(last_steps < _STEP_MAX, last_steps, _STEP_MAX - 1) + 1
    firsts = np.where(is_rewritten, np.minimum(progress.rewritten_from, behind), behind)
    firsts[~is_known] = _STEP_MIN
    chosen = np.flatnonzero(~is_known | is_rewritten | (progress.last_steps > last_steps))
    replaces = is_known & (firsts <= last_steps)
    is_there, _ = _find(cursor.series_ids, progress.series_ids)
    return Unread(chosen, firsts[chosen], replaces[chosen], cursor.series_ids[~is_there])


def advance(
    progress: Progress, before: ReadCursor | None, unread: Unread, whole: int, cut_at: int | None, now: ReadCursor
) -> ReadCursor:
    """The cursor of a reader who was sent the first `whole` of the unread series, and the next one up to `cut_at`.

    `now` is the cursor of one who has everything. Of series that were not reached it says what the one before said.
    """
    waiting = unread.places[whole:]
    if not len(waiting):
        return now
    rewrites, last_steps = now.rewrites.copy(), now.last_steps.copy()
    is_kept = np.ones(len(progress), np.bool_)
    if before is not None:
        is_known, places = _find(progress.series_ids[waiting], before.series_ids)
        rewrites[waiting] = _taken(before.rewrites, is_known, places)
        last_steps[waiting] = _taken(before.last_steps, is_known, places)
        is_kept[waiting] = is_known
    else:
        is_kept[waiting] = False
    if cut_at is not None:
        first = waiting[0]
        rewrites[first], last_steps[first], is_kept[first] = now.rewrites[first], cut_at, True
    columns = (now.series_ids[is_kept], rewrites[is_kept], last_steps[is_kept])
    return ReadCursor(INCOMPLETE, now.selection, *columns)


def everything(progress: Progress, version: int, selection: bytes) -> ReadCursor:
    """The cursor of one who has all there is."""
    return ReadCursor(version, selection, progress.series_ids, progress.rewrites, progress.last_steps)


def _find(wanted: Int64s, among: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Which of the wanted numbers are among those, which ascend, and where."""
    if not len(among):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    places = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return among[places] == wanted, places


def _taken(column: Int64s, is_known: npt.NDArray[np.bool_], places: Int64s) -> Int64s:
    """The column's numbers at these places, 0 where a series is not known."""
    taken = np.zeros(len(places), np.int64)
    taken[is_known] = column[places[is_known]]
    return taken
