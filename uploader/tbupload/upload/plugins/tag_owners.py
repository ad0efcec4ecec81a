"""A prediction of the points the server skips because another plugin has their tag already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from tbupload.upload.segments import EncodedSegment
from tbwire import wire_pb2
from tbwire.messages import parse
from tbwire.tag_owners import belongs_to_owner, misfit_reason
from tbwire.tensorboard_pb2 import SummaryMetadata

_STEP_BYTES: Final = 8


class SeriesKind(NamedTuple):
    """The kind of a series: its plugin and data class."""

    plugin: str
    data_class: int


def series_kind(metadata: bytes) -> SeriesKind:
    """Return the kind of series that has this serialized summary metadata."""
    message = parse(SummaryMetadata, metadata)
    return SeriesKind(message.plugin_data.plugin_name, message.data_class)


class TagOwners:
    """The kind of series that owns each tag of each run: the first one an upload sends."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], SeriesKind] = {}
        self._kinds: dict[SeriesKind, SeriesKind] = {}

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._owners)

    def count_segment(self, run: str, segment: EncodedSegment) -> tuple[Counter[str], Counter[str]]:
        """Count the next segment of the upload, which contains the metadata of all its series.

        Returns:
            What the server would store, as `EncodedSegment.counts`; and the points it would skip,
            by reason.
        """
        misfits = dict(self._find_misfits(run, segment))
        kept, skipped = Counter(segment.counts), Counter[str]()
        if misfits:  # rare, so that parsing the segment again costs little
            for series in parse(wire_pb2.WriteBatch, segment.body).segments[0].series:
                if series.tag in misfits:
                    kept.subtract(_counts(series))
                    skipped[misfits[series.tag]] += _point_count(series)
        return kept, skipped

    def _find_misfits(self, run: str, segment: EncodedSegment) -> Iterator[tuple[str, str]]:
        """Yield tags that belong to another plugin, each with the server's reason."""
        for tag, metadata in segment.metadata.items():
            kind = series_kind(metadata)
            kind = self._kinds.setdefault(kind, kind)  # one object for each kind of many series
            owner = self._owners.setdefault((run, tag), kind)
            if not belongs_to_owner(kind, owner):
                yield tag, misfit_reason(tag, owner.plugin)


def _counts(series: wire_pb2.Series) -> dict[str, int]:
    """Return the number of the series' points by data class."""
    kind = series.WhichOneof("points")
    if kind == "blob_sequences":
        return {"blobs": sum(len(sequence.blobs) for sequence in series.blob_sequences.sequences)}
    assert kind is not None, "a series has points"  # noqa: S101 - for the type checker
    return {kind: _point_count(series)}


def _point_count(series: wire_pb2.Series) -> int:
    columns = getattr(series, series.WhichOneof("points") or "")
    return len(columns.steps) // _STEP_BYTES
