"""Decoded hparams records, cached per worker by the SHA-256 of their bytes.

Decoding 10,000 sessions of 20 hyperparameters takes three times as long as everything else that a
request does with them, and a session's start is written once. The key is the content: a changed
record has another one, and nothing has to be invalidated.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from tbservice import limits
from tbservice.hparams.session_table import HparamNames, StoredStart
from tbwire.hparams import (
    ExperimentSummary,
    HparamValue,
    MalformedHparams,
    SessionEnd,
    SessionStart,
    parse_metadata,
)

StoredRecord = StoredStart | ExperimentSummary | SessionEnd | None
"""A decoded record; None for a malformed one."""


class NotCached(enum.Enum):
    """The type of NOT_CACHED."""

    NOT_CACHED = enum.auto()


NOT_CACHED: Final = NotCached.NOT_CACHED
"""Stands for a record that has to be decoded, as None stands for a malformed one."""

_RECORD_BYTES: Final = 400
"""Bytes of a record without its values, and of its entry in the cache; estimated."""

_VALUE_BYTES: Final = 32
"""Bytes of a value in a tuple."""

_NAME_BYTES: Final = 150
"""Bytes of a name in a tuple and a dictionary."""


class DecodedRecords:
    """A cache of records by digest; the oldest are dropped beyond a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._records: dict[bytes, StoredRecord | NotCached] = {}
        self._sizes: dict[bytes, int] = {}
        self._size = 0

    def find(self, digests: Iterable[bytes]) -> list[StoredRecord | NotCached]:
        """Return the record of each of these, or NOT_CACHED."""
        return list(map(self._records.get, digests, repeat(NOT_CACHED)))

    def add(self, digest: bytes, record: StoredRecord, size: int) -> None:
        """Add a record of an estimated size in bytes."""
        with self._lock:
            if digest in self._records or size > self._bytes_max:
                return
            self._records[digest] = record
            self._sizes[digest] = size
            self._size += size
            while self._size > self._bytes_max:
                oldest = next(iter(self._records))
                del self._records[oldest]
                self._size -= self._sizes.pop(oldest)


class RecordDecoder:
    """Decodes the records of one read, and lets them share names and equal values."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], HparamNames] = {}
        self._strings: dict[str, str] = {}
        self._numbers: dict[float, float] = {}

    def share_names(self, records: Iterable[StoredRecord | NotCached]) -> None:
        """Let later records share the names of these."""
        for record in records:
            if isinstance(record, StoredStart):
                self._names.setdefault(record.names.names, record.names)

    def decode(self, summary_metadata: bytes) -> tuple[StoredRecord, int]:
        """Return the record and its estimated size in bytes; None for a malformed one."""
        try:
            record = parse_metadata(summary_metadata)
        except MalformedHparams:
            record = None
        size = _RECORD_BYTES + len(summary_metadata)
        if not isinstance(record, SessionStart):
            return record, size
        keys = tuple(record.hparams)
        size += _VALUE_BYTES * len(keys)
        if keys not in self._names:
            self._names[keys] = HparamNames(keys)
            size += _NAME_BYTES * len(keys)
        stored = StoredStart(
            self._names[keys],
            tuple(map(self._share, record.hparams.values())),
            self._share_string(record.group_name),
            record.model_uri,
            record.monitor_url,
            record.start_time,
        )
        return stored, size

    def _share(self, value: HparamValue) -> HparamValue:
        if isinstance(value, str):
            return self._share_string(value)
        if value and not isinstance(value, bool):  # 0.0 and -0.0 are equal, but not the same
            return self._numbers.setdefault(value, value)
        return value

    def _share_string(self, value: str) -> str:
        return self._strings.setdefault(value, value)


DECODED: Final = DecodedRecords(limits.HPARAMS_CACHE_BYTES)
"""The cache of this worker."""
