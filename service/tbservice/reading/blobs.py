"""Find blobs by their keys in responses.

A blob's key is `<experiment>.<series>.<step>.<index>.<first 16 hex digits of its SHA-256>`: it is
useless without a grant on that experiment, contains no names, and is valid while the step has
those bytes, in any attempt of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import NotFound
from tbservice.objects.tables import blobs
from tbservice.sample_order import compute_rank_and_key
from tbservice.series.tables import blob_points, sample_slots
from tbservice.series.tables.points import SHOWN_TABLES
from tbservice.series.tables.superseded_points import SUPERSEDED_TABLES
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.series import Blob
from tbwire.points import DataClass

_KEY_DIGEST_CHARS: Final = 16
_BLOB_NOT_FOUND: Final = "there is no such blob, or it is not yours"


def make_blob_key(
    experiment_id: ExperimentId, series_id: int, step: int, index: int, sha256: bytes
) -> str:
    """Return the key of the blob at `index` of a step."""
    return f"{experiment_id}.{series_id}.{step}.{index}.{sha256.hex()[:_KEY_DIGEST_CHARS]}"


def parse_blob_experiment(key: str) -> ExperimentId:
    """Return the experiment in a blob key. Raises NotFound for an invalid key."""
    return parse_blob_key(key)[0]


def find_blob(db: Connection, grant: ReadGrant, key: str) -> Blob:
    """Return the blob of a key.

    Raises NotFound for a key of another experiment, and if the step has other bytes now, in all
    attempts.
    """
    experiment_id, series_id, step, index, digest_start = parse_blob_key(key)
    if experiment_id != grant.experiment_id:
        raise NotFound(_BLOB_NOT_FOUND)
    rank, sample_key = compute_rank_and_key(np.array([step]), sample_slots.get_ranks(db))
    position = series_id, int(rank[0]), int(sample_key[0])
    sequences = (  # lazy: few keys are those of an earlier attempt
        digests
        for tables in (SHOWN_TABLES, SUPERSEDED_TABLES)
        for digests in blob_points.list_digests(
            db, tables[DataClass.BLOB_SEQUENCE], experiment_id, *position
        )
    )
    digest = _find_digest(sequences, index, digest_start)
    if digest is None:
        raise NotFound(_BLOB_NOT_FOUND)
    blob = blobs.find(db, grant.workspace_id, digest)
    if blob is None:
        raise NotFound(_BLOB_NOT_FOUND)
    return blob


def _find_digest(
    sequences: Iterable[Sequence[bytes]], index: int, digest_start: str
) -> bytes | None:
    """Return the first SHA-256 at this index that begins so; None if there is none."""
    for digests in sequences:
        if index < len(digests) and digests[index].hex().startswith(digest_start):
            return digests[index]
    return None


def parse_blob_key(key: str) -> tuple[ExperimentId, int, int, int, str]:
    """Return the arguments of `make_blob_key`, the SHA-256 shortened.

    Raises NotFound for an invalid key.
    """
    try:
        experiment_id, series_id, step, index, digest_start = key.split(".")
        numbers = int(series_id), int(step), int(index)
    except ValueError as error:
        raise NotFound(_BLOB_NOT_FOUND) from error
    is_in_range = (
        0 <= numbers[0] < 2**63 and -(2**63) <= numbers[1] < 2**63 and 0 <= numbers[2] < 2**31
    )
    if not is_in_range or len(digest_start) != _KEY_DIGEST_CHARS:
        raise NotFound(_BLOB_NOT_FOUND)
    return ExperimentId(experiment_id), *numbers, digest_start
