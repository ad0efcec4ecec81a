"""What one event file has told about its series so far: the first metadata of each tag decides what the tag is."""

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
"""The data class of plugins older than data classes, as TensorBoard 2.21's dataclass_compat.py has them."""


_CACHED_SERIES_MAX: Final = 4_096
_CACHED_METADATA_BYTES_MAX: Final = 1_024
"""How many tags, and how long metadata, are remembered beyond a file: its neighbours mostly have the same ones."""


@dataclass(slots=True)
class KnownSeries:
    """A tag of the file. `index` counts the file's tags from 0 in the order they were met.

    `metadata` is serialized, with the data class set. `refusal` is why none of its values can be sent, if so.
    """

    index: int
    tag: str
    plugin: str
    data_class: pb.DataClass
    metadata: bytes
    is_wanted: bool
    refusal: ValueRefused | None

    def copy(self) -> KnownSeries:
        """The same, for another file."""
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
    """An earlier part of the file was recalled: what is being read has to be read anew. It never leaves the reader."""


class TagRegistry:
    """The tags of one event file, by name.

    Writers put metadata on the first value of a tag only, and that value decides what the tag is. When the file was not
    read from its start, a value may need what an earlier part said: `recall` is then called, once, to read that part
    and give its memory, with which this one begins from then on.
    """

    def __init__(
        self,
        series_filter: SeriesFilter,
        limits: ReadLimits,
        replay_prefix: Callable[[], TagRegistry] | None = None,
    ) -> None:
        self._filter = series_filter
        self._rules = _series_rules(series_filter, limits)
        self._replay_prefix = replay_prefix
        self._by_tag: dict[str, KnownSeries] = {}
        self._series: list[KnownSeries] = []

    def __getitem__(self, index: int) -> KnownSeries:
        return self._series[index]

    def find(self, tag: str) -> KnownSeries | None:
        """The tag's series, if a value told what it is."""
        return self._by_tag.get(tag)

    def resolve(self, tag: str, offered: pb.SummaryMetadata | None) -> KnownSeries | None:
        """The series of a value that offers this metadata; None when a filter leaves it out.

        A tag whose first value names no plugin belongs to plugin "". `offered` is None when the value can belong to a
        known tag only. Raises ValueRefused when the value, or every value of its tag, cannot be sent; and Recalled.
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

    def add_like(self, example: KnownSeries) -> KnownSeries:
        """The series of a tag not met yet, as `resolve` made it in another file that is read in the same way.

        Only in files that are read from their start, and not for plugin `hparams`, of which the metadata may change:
        all else never does, and the files share it where the index is the same.
        """
        return self._add(example if example.index == len(self._series) else example.copy())

    def _make_series(self, tag: str, offered: pb.SummaryMetadata | None) -> KnownSeries:
        if offered is None:
            raise ValueRefused(skip_reasons.VALUE_MISMATCH)
        return self._rules.make_series(tag, offered)

    def _check_metadata(self, series: KnownSeries, offered: pb.SummaryMetadata) -> None:
        plugin = offered.plugin_data.plugin_name
        if plugin and plugin != series.plugin:
            self._replay_prefix_once()  # which of the two came first in the file?
            raise ValueRefused(skip_reasons.OTHER_PLUGIN)
        if (
            plugin == HPARAMS
        ):  # what a session is about lives in its metadata, and may be written again
            latest = pb.SummaryMetadata()
            latest.CopyFrom(offered)
            latest.data_class = series.data_class
            series.metadata = latest.SerializeToString()
            series.refusal = self._rules.refusal(series.tag, plugin, series.metadata)

    def _replay_prefix_once(self) -> None:
        """Begins with what the part of the file told that was not read, and raises Recalled; later does nothing."""
        if self._replay_prefix is None:
            return
        recalled = self._replay_prefix()
        self._replay_prefix = (
            None  # not before: when the file cannot be read now, the next attempt needs it again
        )
        since, self._series, self._by_tag = self._series, [], {}
        for series in [*recalled._series, *since]:  # noqa: SLF001 - another memory of the same file
            if series.tag not in self._by_tag:
                self._add(series)
        raise RestartDecode

    def _add(self, series: KnownSeries) -> KnownSeries:
        series.index = len(self._series)
        self._series.append(series)
        self._by_tag[series.tag] = series
        return series


def series_points(registry: TagRegistry, columns: Mapping[int, Columns]) -> list[SeriesPoints]:
    """The columns, by the index of their series, with what the memory says of it; in the order of these indices."""
    known = [(registry[index], columns[index]) for index in sorted(columns)]
    return [
        SeriesPoints(series.tag, series.plugin, series.metadata, each) for series, each in known
    ]


class _SeriesRules:
    """What the first metadata of a tag makes of it; the same in every file that is read with this filter and limits."""

    def __init__(self, series_filter: SeriesFilter, limits: ReadLimits) -> None:
        self._filter = series_filter
        self._limits = limits
        self._known: dict[tuple[str, bytes], KnownSeries] = {}

    def make_series(self, tag: str, offered: pb.SummaryMetadata) -> KnownSeries:
        """The series of a tag that begins with this metadata; its index is to be filled in."""
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
            # A plugin nobody knows keeps its values as they are, and so do values of none.
            metadata.data_class = _DATA_CLASSES.get(plugin, pb.DATA_CLASS_TENSOR)
        is_wanted = self._filter.accepts_series(tag, plugin)
        encoded = metadata.SerializeToString()
        refusal = self.refusal(tag, plugin, encoded)
        return KnownSeries(0, tag, plugin, metadata.data_class, encoded, is_wanted, refusal)

    def refusal(self, tag: str, plugin: str, metadata: bytes) -> ValueRefused | None:
        """Why no value of such a series can be sent, if so."""
        if "\0" in tag or "\0" in plugin:
            return ValueRefused(skip_reasons.TAG_NUL)
        if max(len(tag), len(plugin)) > self._limits.name_chars_max:
            return over_limit_error("tag or plugin name", self._limits.name_chars_max, "characters")
        if len(metadata) > self._limits.metadata_bytes_max:
            return over_limit_error("summary metadata", self._limits.metadata_bytes_max, "bytes")
        return None


@lru_cache(maxsize=4)
def _series_rules(series_filter: SeriesFilter, limits: ReadLimits) -> _SeriesRules:
    return _SeriesRules(series_filter, limits)
