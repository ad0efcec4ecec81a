"""Check that filters match something that is stored."""

from __future__ import annotations

from collections.abc import Iterable

from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.upload.filter_check import EVERYTHING, explain_no_match_of
from tbwire.points import DataClassName


def explain_filters_of(
    client: ExportClient, series_filter: SeriesFilter, kinds: Iterable[DataClassName], place: str
) -> str | None:
    """Return a sentence about filters that match no series of an experiment, else None.

    Without filters, nothing is asked of the server. Raises ServerError.
    """
    if series_filter == EVERYTHING:
        return None
    series = [
        (run, tag, fields["plugin"])
        for kind in kinds
        for run, tags in client.list_series(kind).items()
        for tag, fields in tags.items()
    ]
    return explain_no_match_of(series, series_filter, place)
