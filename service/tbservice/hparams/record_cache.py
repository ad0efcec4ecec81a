"""Decoded hparams records of experiments, cached per worker.

An experiment's records are reused as they are while its version is the same. After a change, its
records are listed again, and those with unchanged bytes (by their digest) are not decoded again:
decoding 10,000 sessions of 20 hyperparameters takes several times as long as all else of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tbservice import limits
from tbservice.hparams.schema import LoggedSummary
from tbservice.hparams.session_table import HparamNames, StoredStart
from tbservice.reading.version_cache import VersionCache
from tbservice.types.grants import ReadGrant
from tbwire.hparams import (
    ExperimentSummary,
    HparamValue,
    MalformedHparams,
    SessionEnd,
    SessionStart,
    parse_metadata,
)

HPARAMS_CACHE_BYTES: Final = 256 * limits.MIB
"""Bytes of decoded hparams records that one worker caches, as estimated."""

StoredRecord = StoredStart | ExperimentSummary | SessionEnd | None
"""A decoded record; None for a malformed one."""

SizedRecord = tuple[StoredRecord, int]
"""A decoded record and its estimated size in bytes."""

_RECORD_BYTES: Final = 400
"""Bytes of a record without its values, and of its entry in the cache; estimated."""

_VALUE_BYTES: Final = 32
"""Bytes of a value in a tuple."""

_NAME_BYTES: Final = 150
"""Bytes of a name in a tuple and a dictionary."""

_RUN_BYTES: Final = 250
"""Bytes of a run and its id in dictionaries, besides the characters of its name."""


@dataclass(frozen=True, slots=True)
class ExperimentRecords:
    """The records of an experiment; shared by requests, so never changed.

    `starts` are by run id; a run with one is a session. `wall_times` are those of the starts, in
    seconds. `malformed` counts the records that were left out.
    """

    run_names: Mapping[int, str]
    starts: Mapping[int, StoredStart] = field(default_factory=dict)
    wall_times: Mapping[int, float] = field(default_factory=dict)
    summaries: tuple[LoggedSummary, ...] = ()
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class CachedRecords:
    """The records of an experiment at a version (`lifecycle.get_version_tag`), and by digest."""

    version: str
    records: ExperimentRecords
    by_digest: Mapping[bytes, SizedRecord]

    @property
    def size(self) -> int:
        """Bytes, estimated."""
        of_records = sum(size for _, size in self.by_digest.values())
        of_names = sum(map(len, self.records.run_names.values()))
        return of_records + of_names + _RUN_BYTES * len(self.records.run_names)


class RecordDecoder:
    """Decodes the records of one read, and lets them share names and equal values."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], HparamNames] = {}
        self._strings: dict[str, str] = {}
        self._numbers: dict[float, float] = {}

    def share_names(self, records: Iterable[StoredRecord]) -> None:
        """Let later records share the names of these."""
        for record in records:
            if isinstance(record, StoredStart):
                self._names.setdefault(record.names.names, record.names)

    def decode(self, summary_metadata: bytes) -> SizedRecord:
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


RECORDS: Final = VersionCache[ReadGrant, CachedRecords](HPARAMS_CACHE_BYTES, lambda each: each.size)
"""The records of the experiments that were read last, by this worker; of any version."""
