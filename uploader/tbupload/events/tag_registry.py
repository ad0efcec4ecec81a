"""Tags of one event file: the first metadata of each tag decides which series it is.

Source: `tensorboard/dataclass_compat.py`, where `initial_metadata` has the same role. The owner of
a tag across the files of a run is decided later, by `tbwire.tag_owners`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tbupload.events import skip_reasons
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import Columns, SeriesPoints
from tbupload.events.skip_reasons import ValueRefused, over_limit_error
from tbupload.limits import ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire.hparams_union import MetadataUnion, UnionOverLimit
from tbwire.tag_owners import HPARAMS

_DATA_CLASSES: Final = {
    "scalars": pb.DATA_CLASS_SCALAR,
    "histograms": pb.DATA_CLASS_TENSOR,
    "text": pb.DATA_CLASS_TENSOR,
    HPARAMS: pb.DATA_CLASS_TENSOR,
    "pr_curves": pb.DATA_CLASS_TENSOR,
    "mesh": pb.DATA_CLASS_TENSOR,
    "custom_scalars": pb.DATA_CLASS_TENSOR,
    "images": pb.DATA_CLASS_BLOB_SEQUENCE,
    "audio": pb.DATA_CLASS_BLOB_SEQUENCE,
    "graph_run_metadata": pb.DATA_CLASS_BLOB_SEQUENCE,
    "graph_run_metadata_graph": pb.DATA_CLASS_BLOB_SEQUENCE,
    "graph_keras_model": pb.DATA_CLASS_BLOB_SEQUENCE,
}
"""Data classes of the plugins that are older than data classes and do not write them.

Source: `_migrate_value` in `tensorboard/dataclass_compat.py` of TensorBoard 2.21.
"""

STOCK_PLUGINS: Final = frozenset(_DATA_CLASSES)
"""The names of these plugins."""

_CACHED_SERIES_MAX: Final = 4_096
"""Tags that are cached for other files: files of one log directory have mostly the same ones."""

_CACHED_METADATA_BYTES_MAX: Final = 1_024
"""Longer metadata, and longer tags, are not cached."""


@dataclass
class KnownSeries:
    """A tag of the file.

    Attributes:
        index: Number of the tag in the order in which the file's tags occur, from 0.
        tag: The tag.
        plugin: Its plugin; empty when its first value names none.
        data_class: Its data class.
        metadata: Its serialized metadata, with the data class set. For plugin `hparams`, that of
            its last value while a chunk is decoded, then that of all its values in the chunk.
        is_wanted: Whether the filter accepts it.
        refusal: Why none of its values can be sent, if so.
    """

    index: int
    tag: str
    plugin: str
    data_class: pb.DataClass
    metadata: bytes
    is_wanted: bool
    refusal: ValueRefused | None

    def copy(self) -> KnownSeries:
        """Return a copy, for another file."""
        return KnownSeries(
            self.index,
            self.tag,
            self.plugin,
            self.data_class,
            self.metadata,
            self.is_wanted,
            self.refusal,
        )


class RestartDecode(Exception):
    """The file's prefix was replayed: decode the chunk again. It never leaves the reader."""


class TagRegistry:
    """The tags of one event file.

    Writers put metadata on the first value of a tag only. When a file is not read from its start,
    a value may need metadata from the part before: `replay_prefix` is called then, at most once
    with success, to read that part and return its tags, which this registry then begins with.
    """

    def __init__(
        self,
        series_filter: SeriesFilter,
        limits: ReadLimits,
        replay_prefix: Callable[[], TagRegistry] | None = None,
    ) -> None:
        self._filter = series_filter
        self._rules = _series_rules(series_filter, limits)
        self._metadata_bytes_max = limits.metadata_bytes_max
        self._replay_prefix = replay_prefix
        self._by_tag: dict[str, KnownSeries] = {}
        self._unions: dict[str, MetadataUnion] = {}
        self._series: list[KnownSeries] = []

    def __getitem__(self, index: int) -> KnownSeries:
        return self._series[index]

    def find(self, tag: str) -> KnownSeries | None:
        """Return the tag's series; None when none of its values was read."""
        return self._by_tag.get(tag)

    def resolve(self, tag: str, offered: pb.SummaryMetadata | None) -> KnownSeries | None:
        """Return the series of a value; None when a filter excludes it.

        Without a plugin in its first value, a tag belongs to plugin "".

        Args:
            tag: The value's tag.
            offered: The metadata of the value; None when it can only belong to a known tag.

        Raises:
            ValueRefused: The value, or every value of its tag, cannot be sent.
            RestartDecode: The tags of the file's prefix were added.
        """
        series = self._by_tag.get(tag)
        if series is None:
            if not self._filter.accepts_tag(tag):
                return None
            if offered is None or not offered.plugin_data.plugin_name:
                self._replay_prefix_once()
            series = self._add(self._make_series(tag, offered))
        elif offered is not None:
            self._check_metadata(series, offered)

        if not series.is_wanted:
            return None
        if series.refusal is not None:
            raise series.refusal
        return series

    def unite_metadata(self, series: KnownSeries, wall_time: float) -> None:
        """Unite the metadata of the value that `resolve` returned this series for with the others.

        Only for plugin `hparams`, when the value has metadata and will be sent. The union is that
        of one chunk, not of the file: the server unites what it was sent before.

        Raises ValueRefused when the union would be over a limit.
        """
        union = self._unions.get(series.tag)
        if union is None:
            self._unions[series.tag] = MetadataUnion(series.metadata, wall_time)
            return
        try:
            union.add(series.metadata, wall_time, self._metadata_bytes_max)
        except UnionOverLimit as error:
            raise ValueRefused(str(error)) from error

    def finish_unions(self) -> None:
        """Set the metadata of the chunk's series of plugin `hparams`, and begin new unions."""
        for tag, union in self._unions.items():
            self._by_tag[tag].metadata = union.serialize()
        self._unions.clear()

    def add_like(self, example: KnownSeries) -> KnownSeries:
        """Add a new tag as `resolve` added it to the registry of another file; return its series.

        Only for files that are read from their start, and not for plugin `hparams`: a series of any
        other plugin never changes, so files share the object where the index is the same.
        """
        return self._add(example if example.index == len(self._series) else example.copy())

    def _make_series(self, tag: str, offered: pb.SummaryMetadata | None) -> KnownSeries:
        if offered is None:
            raise ValueRefused(skip_reasons.VALUE_MISMATCH)
        return self._rules.make_series(tag, offered)

    def _check_metadata(self, series: KnownSeries, offered: pb.SummaryMetadata) -> None:
        """Check later metadata of a known tag; of `hparams` it becomes that of the series.

        The plugin rule is that of `tag_owners.belongs_to_owner`, inlined as this runs per value.
        """
        plugin = offered.plugin_data.plugin_name
        if plugin and plugin != series.plugin:
            # Without the prefix it is not known which of the two plugins came first in the file.
            self._replay_prefix_once()
            raise ValueRefused(skip_reasons.OTHER_PLUGIN)
        if plugin == HPARAMS:
            latest = pb.SummaryMetadata()
            latest.CopyFrom(offered)
            latest.data_class = series.data_class
            series.metadata = latest.SerializeToString()
            series.refusal = self._rules.refusal(series.tag, plugin, series.metadata)

    def _replay_prefix_once(self) -> None:
        """Put the prefix's tags before the others and raise RestartDecode; if done, return."""
        if self._replay_prefix is None:
            return
        prefix = self._replay_prefix()
        # Only cleared after success: when the file cannot be read now, the next attempt needs it.
        self._replay_prefix = None

        since, self._series, self._by_tag = self._series, [], {}
        for series in [*prefix._series, *since]:  # noqa: SLF001 - another registry of the same file
            if series.tag not in self._by_tag:
                self._add(series)
        raise RestartDecode

    def _add(self, series: KnownSeries) -> KnownSeries:
        series.index = len(self._series)
        self._series.append(series)
        self._by_tag[series.tag] = series
        return series


def series_points(registry: TagRegistry, columns: Mapping[int, Columns]) -> list[SeriesPoints]:
    """Return the columns with their series' names and metadata, in the order of the indices.

    `columns` are by the index of their series in the registry. To be called once per chunk.
    """
    registry.finish_unions()
    known = [(registry[index], columns[index]) for index in sorted(columns)]
    return [
        SeriesPoints(series.tag, series.plugin, series.metadata, each) for series, each in known
    ]


class _SeriesRules:
    """How the first metadata of a tag becomes a series; shared by files with equal options."""

    def __init__(self, series_filter: SeriesFilter, limits: ReadLimits) -> None:
        self._filter = series_filter
        self._limits = limits
        self._known: dict[tuple[str, bytes], KnownSeries] = {}

    def make_series(self, tag: str, offered: pb.SummaryMetadata) -> KnownSeries:
        """Return the series of a tag that begins with this metadata; the caller sets its index."""
        encoded = offered.SerializeToString()
        known = self._known.get((tag, encoded))
        if known is None:
            known = self._make_series(tag, offered)
            if len(encoded) <= _CACHED_METADATA_BYTES_MAX >= len(tag):
                if len(self._known) >= _CACHED_SERIES_MAX:
                    self._known.clear()
                self._known[tag, encoded] = known
        return known.copy()

    def _make_series(self, tag: str, offered: pb.SummaryMetadata) -> KnownSeries:
        metadata = pb.SummaryMetadata()
        metadata.CopyFrom(offered)
        plugin = metadata.plugin_data.plugin_name
        if not plugin or metadata.data_class not in _DATA_CLASSES.values():
            # Values of unknown plugins are stored as written, as tensors, and not dropped.
            metadata.data_class = _DATA_CLASSES.get(plugin, pb.DATA_CLASS_TENSOR)
        is_wanted = self._filter.accepts_series(tag, plugin)
        encoded = metadata.SerializeToString()
        refusal = self.refusal(tag, plugin, encoded)
        return KnownSeries(0, tag, plugin, metadata.data_class, encoded, is_wanted, refusal)

    def refusal(self, tag: str, plugin: str, metadata: bytes) -> ValueRefused | None:
        """Return why no value of such a series can be sent, if so."""
        if "\0" in tag or "\0" in plugin:  # PostgreSQL's text cannot contain it
            return ValueRefused(skip_reasons.TAG_NUL)
        if max(len(tag), len(plugin)) > self._limits.name_chars_max:
            return over_limit_error("tag or plugin name", self._limits.name_chars_max, "characters")
        if len(metadata) > self._limits.metadata_bytes_max:
            return over_limit_error("summary metadata", self._limits.metadata_bytes_max, "bytes")
        return None


@lru_cache(maxsize=4)
def _series_rules(series_filter: SeriesFilter, limits: ReadLimits) -> _SeriesRules:
    return _SeriesRules(series_filter, limits)
