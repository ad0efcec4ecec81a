"""Comparison of a series of the files with the stored one: by digest, then by records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tbupload.errors import Refused
from tbupload.http.client import Client
from tbupload.upload.projector_stream import PLUGIN as PROJECTOR
from tbupload.verify.findings import Finding, Status
from tbupload.verify.local_series import LocalRuns, LocalSeries
from tbupload.verify.step_order import Differences, compare
from tbwire.digests import Records, SeriesDigest, deduplicate_steps, record_dtype

_NOT_FOUND: Final = 404

StoredDigest = dict[str, Any]
"""A series as the server describes it: see `Client.list_digests`."""


class SeriesComparison:
    """Compares series of the files with those of one experiment."""

    def __init__(self, client: Client, experiment_id: str) -> None:
        self._client = client
        self._experiment_id = experiment_id

    def compare(self, local: LocalRuns, ours: LocalSeries, theirs: StoredDigest | None) -> Finding:
        """Return the finding for a series of the files; `theirs` is None if it is not stored.

        Reads the stored records only if count or digest differ. Raises ServerError.
        """
        digest = local.digest(ours)
        if theirs is None:
            reasons = ("the whole series is missing",)
            return _make_finding(ours, digest, Status.MISSING, 0, None, reasons)

        reasons = tuple(_reasons(ours, theirs))
        if theirs["data_class"] != ours.data_class:
            return _make_finding(ours, digest, Status.DIFFERENT, theirs["count"], None, reasons)

        differences = None
        if ours.plugin == PROJECTOR:
            # The stored wall time is that of the upload, which no file contains, so the digests
            # always differ: compare the records without it.
            differences = compare(
                map(_without_wall_times, local.records(ours)),
                map(_without_wall_times, self._stored_records(ours)),
            )
        elif (theirs["count"], theirs["sha256"]) != (digest.count, digest.hexdigest()):
            differences = compare(local.records(ours), self._stored_records(ours))

        status = _status(differences, reasons)
        return _make_finding(ours, digest, status, theirs["count"], differences, reasons)

    def _stored_records(self, series: LocalSeries) -> Iterator[Records]:
        """Yield the stored records of a series in step order; none if it was deleted meanwhile."""
        dtype = record_dtype(is_scalar=series.data_class == "scalar")
        try:
            for page in self._client.read_records(self._experiment_id, series.run, series.tag):
                yield deduplicate_steps(np.frombuffer(page, dtype))
        except Refused as refusal:
            if refusal.status != _NOT_FOUND:
                raise


def extra_finding(theirs: StoredDigest) -> Finding:
    """Return the finding for a stored series that is in none of the files."""
    return Finding(
        theirs["run"],
        theirs["tag"],
        theirs["plugin"],
        theirs["data_class"],
        Status.EXTRA,
        0,
        theirs["count"],
        reasons=(f"a series of {theirs['count']:,} points that is in none of the files",),
    )


def _without_wall_times(records: Records) -> Records:
    """Return a copy of the records with all wall times 0."""
    copied = records.copy()
    copied["wall_time"] = 0.0
    return copied


def _make_finding(
    ours: LocalSeries,
    digest: SeriesDigest,
    status: Status,
    stored_points: int,
    differences: Differences | None,
    reasons: tuple[str, ...],
) -> Finding:
    return Finding(
        ours.run,
        ours.tag,
        ours.plugin,
        ours.data_class,
        status,
        digest.count,
        stored_points,
        differences,
        reasons,
    )


def _reasons(ours: LocalSeries, theirs: StoredDigest) -> Iterator[str]:
    """Yield a sentence for each difference in plugin, data class or summary metadata."""
    if theirs["plugin"] != ours.plugin:
        yield (
            f"it belongs to plugin {theirs['plugin']!r} in the experiment, "
            f"and to {ours.plugin!r} in the files"
        )
    if theirs["data_class"] != ours.data_class:
        yield (
            f"it is a {theirs['data_class']} series in the experiment, "
            f"and a {ours.data_class} series in the files"
        )
    elif theirs["plugin"] == ours.plugin and theirs["metadata_sha256"] != ours.metadata_sha256:
        yield "its summary metadata differs"


def _status(differences: Differences | None, reasons: tuple[str, ...]) -> Status:
    if reasons or (
        differences is not None and (differences.missing.count or differences.different.count)
    ):
        return Status.DIFFERENT
    return Status.EXTRA if differences is not None and differences.extra.count else Status.MATCHING
