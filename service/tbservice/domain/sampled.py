"""Samples as the parts that formats are made of: each with its series, and with what is known of its blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from tbservice.domain.whole import Part, Sample
from tbservice.store import blobs, time_series, value_rows
from tbservice.types import Blob, BlobSequenceSample, DataClass, ReadGrant, Selection


def parts_of(
    db: Connection,
    grant: ReadGrant,
    selection: Selection,
    data_class: DataClass,
    samples: Mapping[str, Mapping[str, Sample]],
) -> list[Part]:
    """One part a series. `samples` were made of this selection in the same snapshot."""
    found = time_series.list_series(db, grant.experiment_id, replace(selection, data_class=data_class))
    parts = [Part(series, samples[series.run][series.tag]) for series in found]
    if data_class is not DataClass.BLOB_SEQUENCE:
        return parts
    known = _find_blobs(db, grant, parts)
    return [replace(part, blobs=known) for part in parts]


def _find_blobs(db: Connection, grant: ReadGrant, parts: Iterable[Part]) -> dict[str, Blob]:
    """The blobs of these parts, by key."""
    places = {}
    for part in parts:
        assert isinstance(part.sample, BlobSequenceSample)  # noqa: S101 - the data class says so
        for step, keys in zip(part.sample.steps.tolist(), part.sample.sequences, strict=True):
            for key in keys:
                places[key] = part.series.series_id, step, int(key.split(".")[3])
    points = {(series_id, step) for series_id, step, _ in places.values()}
    digests = value_rows.get_digests(db, grant.experiment_id, sorted(points))
    by_key = {key: digests[series_id, step][index] for key, (series_id, step, index) in places.items()}
    known = blobs.find_all(db, grant.workspace_id, set(by_key.values()))
    return {key: known[digest] for key, digest in by_key.items()}
