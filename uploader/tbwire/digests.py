"""The digest of a time series, by which two sides find out that they hold the same points without sending them.

Canonical bytes: the points in step order, one a step, each as one record of fixed size, little-endian:

- scalar, 24 bytes: step int64, wall time float64, value float64. A float32 is widened as numpy does it, so that a
  signalling NaN becomes the quiet one with the same payload; every other bit of every number counts, NaN and -0.0 too.
- tensor and blob sequence, 48 bytes: step int64, wall time float64, and the SHA-256 of the value: `tensor_digest`,
  `blob_sequence_digest`.

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
    """The type of a series' records."""
    return SCALAR_RECORD if is_scalar else VALUE_RECORD


def scalar_records(
    steps: npt.NDArray[Any], wall_times: npt.NDArray[Any], values: npt.NDArray[Any]
) -> Records:
    """Scalar points as records, in the order given; values are float32 or float64."""
    records = np.empty(len(steps), SCALAR_RECORD)
    records["step"], records["wall_time"] = steps, wall_times
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        records["value"] = values
    return records


def value_records(
    steps: npt.ArrayLike, wall_times: npt.ArrayLike, digests: Sequence[bytes]
) -> Records:
    """Points of tensors or blob sequences as records, in the order given; each digest is 32 bytes."""
    records = np.empty(len(digests), VALUE_RECORD)
    records["step"], records["wall_time"] = steps, wall_times
    records["value"] = np.frombuffer(b"".join(digests), "V32")
    return records


def tensor_digest(
    dtype: int, shape: Sequence[int], data_sha256: bytes, histogram_sha256: bytes | None
) -> bytes:
    """SHA-256 of: data type int32, rank int32, the dimensions int64, and the SHA-256 of the data (`tensors.py`).

    Where a legacy histogram stands beside the tensor, the SHA-256 of its serialized message comes last.
    """
    head = struct.pack(f"<ii{len(shape)}q", dtype, len(shape), *shape)
    return hashlib.sha256(head + data_sha256 + (histogram_sha256 or b"")).digest()


def blob_sequence_digest(sha256s: Iterable[bytes], logged_content_type: str = "") -> bytes:
    """SHA-256 of the blobs' own SHA-256s, in the order of the sequence.

    Where a content type was logged, the words "content type: " and the type, in UTF-8, come last.
    """
    typed = f"content type: {logged_content_type}".encode() if logged_content_type else b""
    return hashlib.sha256(b"".join(sha256s) + typed).digest()


def deduplicate_steps(records: Records) -> Records:
    """The records in step order, one a step: the greatest wall time wins, then the later of those given."""
    steps = records["step"]
    if bool(np.all(steps[1:] > steps[:-1])):
        return records
    remaining: Records = records[deduplicated_order(steps, records["wall_time"])]
    return remaining


class SeriesDigest:
    """Takes a series' records in step order, in pieces of any size, and gives the digest of all of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self._sha256 = hashlib.sha256()

    def add(self, records: Records) -> None:
        """Takes the next records."""
        if not len(records):
            return
        self.count += len(records)
        if self.first_step is None:
            self.first_step = int(records["step"][0])
        self.last_step = int(records["step"][-1])
        self._sha256.update(np.ascontiguousarray(records).view(np.uint8).data)

    def hexdigest(self) -> str:
        """The digest of what was taken until now, in hexadecimal."""
        return self._sha256.hexdigest()
