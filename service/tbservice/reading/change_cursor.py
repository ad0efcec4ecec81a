"""The change cursor: the position of a client in an experiment's change feed, per series.

The client stores it as opaque text. It is data, not a credential: it is applied under the client's
own grant, so that a forged cursor discloses nothing that the grant does not allow to read.
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
from tbservice.reading.tables.series_progress import SeriesProgress
from tbservice.types.identifiers import ExperimentId, Int64s
from tbservice.types.sampling import Selection

_FORMAT: Final = 1
_HEADER: Final = struct.Struct("<Bq8s")
"""Format (uint8), version (int64, little-endian) and selection digest (8 bytes)."""

_COLUMNS: Final = 3
_STEP_MIN: Final = -(2**63)
_STEP_MAX: Final = 2**63 - 1

INCOMPLETE: Final = -1
"""The `version` of a cursor after which further changes were available already."""


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """State of a client: it has all points up to `last_steps` of each series, as of `rewrites`.

    The columns are in ascending order of series ids. `version` is the experiment's version when the
    client had everything, else INCOMPLETE.
    """

    version: int
    selection_digest: bytes
    series_ids: Int64s
    rewrites: Int64s
    last_steps: Int64s


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Changes that a client lacks: columns of the series with new points, ids of deleted series.

    `indices` are indices into the SeriesProgress. All points of a series from step `first_steps` on
    are pending; where `is_replacing`, they replace points that the client has from that step on.
    """

    indices: Int64s
    first_steps: Int64s
    is_replacing: npt.NDArray[np.bool_]
    removed: Int64s


def selection_digest(experiment_id: ExperimentId, selection: Selection) -> bytes:
    """Return an 8-byte digest of experiment and selection: a cursor is valid for these only."""
    lines: list[str] = [experiment_id, str(selection.plugin), str(selection.data_class)]
    for names in (selection.runs, selection.tags):
        # Names are hashed, as they may contain the line feed that separates them.
        lines += (
            ["*"]
            if names is None
            else [hashlib.sha256(name.encode()).hexdigest() for name in sorted(names)]
        )
        lines.append("")
    return hashlib.sha256("\n".join(lines).encode()).digest()[:8]


def encode(cursor: ChangeCursor) -> str:
    """Return the cursor as text of the URL-safe base64 alphabet (RFC 4648, section 5), unpadded."""
    columns = (cursor.series_ids, cursor.rewrites, cursor.last_steps)
    content = _HEADER.pack(_FORMAT, cursor.version, cursor.selection_digest) + b"".join(
        map(_to_byte_planes, columns)
    )
    # Unpadded, since "=" would have to be escaped in a query.
    return base64.urlsafe_b64encode(zlib.compress(content)).decode().rstrip("=")


def decode(text: str, selection: bytes) -> ChangeCursor:
    """Decode a cursor, which must have this selection digest.

    Raises MalformedRequest for a text that is not a cursor, Invalid for one of another selection.
    """
    try:
        content = _inflate(
            base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        )
        format_version, version, digest = _HEADER.unpack_from(content)
        columns = np.frombuffer(content, np.uint8, offset=_HEADER.size).reshape(_COLUMNS, -1)
        series_ids, rewrites, last_steps = map(_from_byte_planes, columns)
    except (binascii.Error, zlib.error, struct.error, ValueError) as error:
        raise MalformedRequest("'since' is not a cursor of an earlier answer") from error

    if format_version != _FORMAT or not _is_ascending(series_ids):
        raise MalformedRequest("'since' is not a cursor of an earlier answer")
    if digest != selection:
        raise Invalid(
            "'since' is a cursor of other series or another experiment: begin without one"
        )
    return ChangeCursor(version, digest, series_ids, rewrites, last_steps)


def _is_ascending(numbers: Int64s) -> bool:
    return bool(np.all(numbers[1:] > numbers[:-1]))


def _to_byte_planes(column: Int64s) -> bytes:
    """Encode differences of neighbours by byte planes: all lowest bytes first, then the next.

    The columns of series that are written together compress to almost nothing in this layout.
    """
    differences = np.diff(column, prepend=np.zeros(1, np.int64)).astype("<i8")
    return differences.view(np.uint8).reshape(-1, 8).T.tobytes()


def _from_byte_planes(planes: npt.NDArray[np.uint8]) -> Int64s:
    differences = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8").reshape(-1)
    return np.cumsum(differences, dtype=np.int64)


def _inflate(data: bytes) -> bytes:
    """Decompress at most the size of the largest cursor. Raises ValueError, zlib.error."""
    bytes_max = _HEADER.size + _COLUMNS * 8 * limits.CURSOR_SERIES_ITEMS_MAX
    inflater = zlib.decompressobj()
    # Bounded: a few bytes of zlib can be a gigabyte of zeros.
    content = inflater.decompress(data, bytes_max)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("truncated, too large, or followed by other data")
    return content


def find_pending(progress: SeriesProgress, cursor: ChangeCursor | None) -> PendingChanges:
    """Return what the owner of a cursor lacks; with None, everything.

    Points are appended after a series' last step, except for those counted by `rewrites`, which are
    at or after step `rewritten_from`. So a client with fewer rewrites than the series restarts at
    that step, and any other continues after its own last step.
    """
    if cursor is None:
        indices = np.arange(len(progress))
        return PendingChanges(
            indices, np.full(len(progress), _STEP_MIN), indices < 0, np.empty(0, np.int64)
        )

    is_known, indices = _find_indices(progress.series_ids, cursor.series_ids)
    last_steps = _take_or_zero(cursor.last_steps, is_known, indices)
    is_rewritten = is_known & (
        progress.rewrites != _take_or_zero(cursor.rewrites, is_known, indices)
    )

    # The greatest step has no next one, and numpy would wrap around to the least.
    next_steps = np.where(last_steps < _STEP_MAX, last_steps, _STEP_MAX - 1) + 1
    first_steps = np.where(
        is_rewritten, np.minimum(progress.rewritten_from, next_steps), next_steps
    )
    # A series that the client does not know is read from its beginning.
    first_steps[~is_known] = _STEP_MIN
    pending = np.flatnonzero(~is_known | is_rewritten | (progress.last_steps > last_steps))
    is_replacing = is_known & (first_steps <= last_steps)

    exists, _ = _find_indices(cursor.series_ids, progress.series_ids)
    return PendingChanges(
        pending, first_steps[pending], is_replacing[pending], cursor.series_ids[~exists]
    )


def advance(
    progress: SeriesProgress,
    before: ChangeCursor | None,
    pending: PendingChanges,
    complete_count: int,
    cut_step: int | None,
    head_cursor: ChangeCursor,
) -> ChangeCursor:
    """Return the cursor after a change set.

    Args:
        progress: The series, as listed for the change set.
        before: The client's cursor, from which series that were not reached are copied.
        pending: Changes that the client lacked.
        complete_count: How many of the pending series were returned to their end.
        cut_step: Last step that was returned of the pending series after these; None for no step.
        head_cursor: The cursor of a client that has everything (`head`).
    """
    remaining = pending.indices[complete_count:]
    if not len(remaining):
        return head_cursor

    rewrites, last_steps = head_cursor.rewrites.copy(), head_cursor.last_steps.copy()
    is_included = np.ones(len(progress), np.bool_)
    if before is not None:
        is_known, indices = _find_indices(progress.series_ids[remaining], before.series_ids)
        rewrites[remaining] = _take_or_zero(before.rewrites, is_known, indices)
        last_steps[remaining] = _take_or_zero(before.last_steps, is_known, indices)
        # A series that was not reached and is not known stays out: it is pending again next time.
        is_included[remaining] = is_known
    else:
        is_included[remaining] = False

    if cut_step is not None:
        first = remaining[0]
        rewrites[first] = head_cursor.rewrites[first]
        last_steps[first] = cut_step
        is_included[first] = True
    columns = (head_cursor.series_ids[is_included], rewrites[is_included], last_steps[is_included])
    return ChangeCursor(INCOMPLETE, head_cursor.selection_digest, *columns)


def head(progress: SeriesProgress, version: int, selection: bytes) -> ChangeCursor:
    """Return the cursor of a client that has everything."""
    return ChangeCursor(
        version, selection, progress.series_ids, progress.rewrites, progress.last_steps
    )


def _find_indices(values: Int64s, among: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Return which values are in `among`, an ascending array, and their indices there."""
    if not len(among):
        return np.zeros(len(values), np.bool_), np.zeros(len(values), np.int64)

    indices = np.minimum(np.searchsorted(among, values), len(among) - 1)
    return among[indices] == values, indices


def _take_or_zero(column: Int64s, is_known: npt.NDArray[np.bool_], indices: Int64s) -> Int64s:
    """Return the column's values at these indices, 0 where a series is not known."""
    taken = np.zeros(len(indices), np.int64)
    taken[is_known] = column[indices[is_known]]
    return taken
