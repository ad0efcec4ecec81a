"""Comparison of a series of the files with the stored one: by digest, then by records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tbupload.console.texts import counted
from tbupload.errors import Refused
from tbupload.http.client import Client
from tbupload.upload.plugins.projector_stream import PLUGIN as PROJECTOR
from tbupload.verify.findings import Finding, Status
from tbupload.verify.local_series import LocalRuns, LocalSeries
from tbupload.verify.step_order import Differences, compare
from tbwire.digests import Records, SeriesDigest, deduplicate_steps, record_dtype
from tbwire.hparams import SESSION_END_TAG, SESSION_START_TAG
from tbwire.hparams_union import MetadataUnion
from tbwire.tag_owners import HPARAMS

SESSION_SERIES: Final = frozenset((HPARAMS, tag) for tag in (SESSION_START_TAG, SESSION_END_TAG))
"""Plugin and tag of the series that `tbupload --hparams` and the API write."""

SUPERSEDED: Final = "has what was logged or set later"

_NOT_FOUND: Final = 404

StoredDigest = dict[str, Any]
"""A series as the server describes it: see `Client.list_digests`."""


class SeriesComparison:
    """Compares series of the files with those of one experiment."""

    def __init__(self, client: Client, experiment_id: str) -> None:
        self._client = client
        self._experiment_id = experiment_id

    def compare(self, runs: LocalRuns, series: LocalSeries, stored: StoredDigest | None) -> Finding:
        """Return the finding for a series of the files; `stored` is None if it is not stored.

        Reads the stored records only if count or digest differ. Raises ServerError.
        """
        digest = runs.digest(series)
        if stored is None:
            return _make_finding(
                series, digest, Status.MISSING, 0, None, ("the whole series is missing",)
            )

        reasons = tuple(_reasons(series, stored))
        if stored["data_class"] != series.data_class:
            return _make_finding(series, digest, Status.DIFFERENT, stored["count"], None, reasons)

        differences = None
        if series.plugin == PROJECTOR:
            # The stored wall time is that of the upload, which no file contains, so the digests
            # always differ: compare the records without it.
            differences = compare(
                map(_without_wall_times, runs.records(series)),
                map(_without_wall_times, self._stored_records(series)),
            )
        elif (stored["count"], stored["sha256"]) != (digest.count, digest.hexdigest()):
            differences = compare(runs.records(series), self._stored_records(series))

        if (reasons or differences is not None) and (series.plugin, series.tag) in SESSION_SERIES:
            finding = self._compare_session(runs, series, stored, digest, reasons)
            if finding is not None:
                return finding

        status = _status(differences, reasons)
        return _make_finding(series, digest, status, stored["count"], differences, reasons)

    def _compare_session(
        self,
        runs: LocalRuns,
        series: LocalSeries,
        stored: StoredDigest,
        digest: SeriesDigest,
        reasons: tuple[str, ...],
    ) -> Finding | None:
        """Return the finding for a session's start or end that the experiment has more of.

        It matches if an upload of the files would change nothing: what was set, or logged in other
        files, has superseded it. Then it has points of its own, which are placeholders. None if the
        upload would change it.
        """
        if stored["plugin"] != series.plugin or not isinstance(series.metadata, MetadataUnion):
            return None
        wall_times = [
            records["wall_time"].max() for records in self._stored_records(series) if len(records)
        ]
        differences = compare(
            runs.records(series), self._stored_records(series), accepts_later=True
        )
        content = self._client.read_metadata_content(self._experiment_id, series.run, series.tag)
        if (
            not wall_times
            or (reasons and series.metadata.content == content)  # something else differs
            or differences.missing.count
            or differences.different.count
            or not series.metadata.is_part_of(content, float(max(wall_times)))
        ):
            return None
        finding = _make_finding(
            series, digest, Status.MATCHING, stored["count"], None, (SUPERSEDED,)
        )
        return replace(finding, is_superseded=True)

    def _stored_records(self, series: LocalSeries) -> Iterator[Records]:
        """Yield the stored records of a series in step order; none if it was deleted meanwhile."""
        dtype = record_dtype(is_scalar=series.data_class == "scalar")
        try:
            for page in self._client.read_records(self._experiment_id, series.run, series.tag):
                yield deduplicate_steps(np.frombuffer(page, dtype))
        except Refused as refusal:
            if refusal.status != _NOT_FOUND:
                raise


def extra_finding(stored: StoredDigest) -> Finding:
    """Return the finding for a stored series that is in none of the files."""
    return Finding(
        stored["run"],
        stored["tag"],
        stored["plugin"],
        stored["data_class"],
        Status.EXTRA,
        0,
        stored["count"],
        reasons=(f"a series of {counted(stored['count'], 'point')} that is in none of the files",),
    )


def _without_wall_times(records: Records) -> Records:
    """Return a copy of the records with all wall times 0."""
    copied = records.copy()
    copied["wall_time"] = 0.0
    return copied


def _make_finding(
    series: LocalSeries,
    digest: SeriesDigest,
    status: Status,
    stored_points: int,
    differences: Differences | None,
    reasons: tuple[str, ...],
) -> Finding:
    return Finding(
        series.run,
        series.tag,
        series.plugin,
        series.data_class,
        status,
        digest.count,
        stored_points,
        differences,
        reasons,
    )


def _reasons(series: LocalSeries, stored: StoredDigest) -> Iterator[str]:
    """Yield a sentence for each difference in plugin, data class or summary metadata."""
    if stored["plugin"] != series.plugin:
        yield (
            f"it belongs to plugin {stored['plugin']!r} in the experiment, "
            f"and to {series.plugin!r} in the files"
        )
    if stored["data_class"] != series.data_class:
        yield (
            f"it is a {stored['data_class']} series in the experiment, "
            f"and a {series.data_class} series in the files"
        )
    elif stored["plugin"] == series.plugin and stored["metadata_sha256"] != series.metadata_sha256:
        yield "its summary metadata differs"


def _status(differences: Differences | None, reasons: tuple[str, ...]) -> Status:
    if reasons or (
        differences is not None and (differences.missing.count or differences.different.count)
    ):
        return Status.DIFFERENT
    return Status.EXTRA if differences is not None and differences.extra.count else Status.MATCHING
