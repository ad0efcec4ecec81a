"""Digest of a time series: two sides compare their points without sending them.

Canonical bytes: the points in step order, one per step, each as one record of fixed size,
little-endian:

- scalar, 24 bytes: step int64, wall time float64, value float64. A float32 is widened as numpy does
  it, so that a signalling NaN becomes the quiet one with the same payload; every other bit of every
  number counts, those of NaN and -0.0 too.
- tensor and blob sequence, 48 bytes: step int64, wall time float64, and the SHA-256 of the value:
  `tensor_digest`, `blob_sequence_digest`.

The digest is the SHA-256 of these bytes; of a series without points, that of no bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbwire.dedup import deduplicated_order

Records = npt.NDArray[Any]
"""A column of SCALAR_RECORD or VALUE_RECORD."""

SCALAR_RECORD: Final = np.dtype([("step", "<i8"), ("wall_time", "<f8"), ("value", "<f8")])

VALUE_RECORD: Final = np.dtype([("step", "<i8"), ("wall_time", "<f8"), ("value", "V32")])


def record_dtype(*, is_scalar: bool) -> np.dtype[Any]:
    """Return the type of a series' records."""
    return SCALAR_RECORD if is_scalar else VALUE_RECORD


def scalar_records(
    steps: npt.NDArray[Any], wall_times: npt.NDArray[Any], values: npt.NDArray[Any]
) -> Records:
    """Return scalar points as records, in the given order; values are float32 or float64."""
    records = np.empty(len(steps), SCALAR_RECORD)
    records["step"], records["wall_time"] = steps, wall_times
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        records["value"] = values
    return records


def value_records(
    steps: npt.ArrayLike, wall_times: npt.ArrayLike, digests: Sequence[bytes]
) -> Records:
    """Return points of tensors or blob sequences as records, in the given order.

    Each digest has 32 bytes.
    """
    records = np.empty(len(digests), VALUE_RECORD)
    records["step"], records["wall_time"] = steps, wall_times
    records["value"] = np.frombuffer(b"".join(digests), "V32")
    return records


def tensor_digest(
    dtype: int, shape: Sequence[int], data_sha256: bytes, histogram_sha256: bytes | None
) -> bytes:
    """Return the SHA-256 of a tensor.

    It covers, little-endian: data type int32, rank int32, the dimensions int64, the SHA-256 of the
    data (as `tensors.py` packs it), and for a legacy histogram the SHA-256 of its serialized
    message.
    """
    head = struct.pack(f"<ii{len(shape)}q", dtype, len(shape), *shape)
    return hashlib.sha256(head + data_sha256 + (histogram_sha256 or b"")).digest()


def blob_sequence_digest(sha256s: Iterable[bytes], logged_content_type: str = "") -> bytes:
    """Return the SHA-256 of the SHA-256s of the blobs, in the order of the sequence.

    A logged content type comes last, as "content type: " and the type in UTF-8.
    """
    typed = f"content type: {logged_content_type}".encode() if logged_content_type else b""
    return hashlib.sha256(b"".join(sha256s) + typed).digest()


def deduplicate_steps(records: Records) -> Records:
    """Return the records that remain by the rule of `dedup`, in step order.

    `records` are in the order of their arrival; if steps increase strictly, they are returned.
    """
    steps = records["step"]
    if bool(np.all(steps[1:] > steps[:-1])):
        return records
    remaining: Records = records[deduplicated_order(steps, records["wall_time"])]
    return remaining


class SeriesDigest:
    """The digest of a series; its records are added in step order, in batches of any size."""

    def __init__(self) -> None:
        self.count = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self._sha256 = hashlib.sha256()

    def add(self, records: Records) -> None:
        """Add the next records."""
        if not len(records):
            return
        self.count += len(records)
        if self.first_step is None:
            self.first_step = int(records["step"][0])
        self.last_step = int(records["step"][-1])
        # A slice of records may be strided: hashlib takes contiguous bytes only.
        self._sha256.update(np.ascontiguousarray(records).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the digest of the records added so far, in hexadecimal."""
        return self._sha256.hexdigest()
