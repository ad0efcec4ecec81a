"""Native `timeseries/tags` and `scalars/tags`: the tags of each run.

Most runs have the same tags. Tags are read, sorted and encoded once per distinct set, so that the
time grows with the number of runs, not of series. The stock handlers are in
`tensorboard/plugins/metrics/metrics_plugin.py` and `plugins/scalar/scalars_plugin.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import orjson
from google.protobuf.message import DecodeError
from starlette.responses import Response
from tensorboard import plugin_util
from tensorboard.plugins.histogram import metadata as histogram_metadata
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.metrics import metrics_plugin
from tensorboard.plugins.scalar import metadata as scalar_metadata
from werkzeug.wrappers import Request

from tbservice.reading.comparison import Source
from tbservice.reading.tag_groups import TagGroup
from tbservice.tensorboard.native import json_answers
from tbservice.tensorboard.native.confinement import require_process
from tbwire.points import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata

_SCALARS: Final = (scalar_metadata.PLUGIN_NAME, DataClass.SCALAR)
_HISTOGRAMS: Final = (histogram_metadata.PLUGIN_NAME, DataClass.TENSOR)
_IMAGES: Final = (image_metadata.PLUGIN_NAME, DataClass.BLOB_SEQUENCE)
_BLOBS_BEFORE_IMAGES: Final = 2
"""The first blobs of an image summary are width and height: `plugins/image/summary_v2.py`."""

_PARSE: Final[dict[str, Callable[[bytes], Any]]] = {
    scalar_metadata.PLUGIN_NAME: scalar_metadata.parse_plugin_metadata,
    histogram_metadata.PLUGIN_NAME: histogram_metadata.parse_plugin_metadata,
    image_metadata.PLUGIN_NAME: image_metadata.parse_plugin_metadata,
}


def list_metrics(source: Source, request: Request) -> Response:
    """Answer `timeseries/tags`: the tags of scalars, histograms and images.

    Descriptions are HTML. Raises NeedsProcess outside a handler process if there are any.
    """
    groups = _read_groups(source, _SCALARS, _HISTOGRAMS, _IMAGES)
    _require_process_for_descriptions(request, groups)
    scalars, histograms, images = (
        [group for group in groups if (group.plugin, group.data_class) == kind]
        for kind in (_SCALARS, _HISTOGRAMS, _IMAGES)
    )

    content = {
        "scalars": {"runTagInfo": _run_tags(scalars), "tagDescriptions": _descriptions(scalars)},
        "histograms": {
            "runTagInfo": _run_tags(histograms),
            "tagDescriptions": _descriptions(histograms),
        },
        "images": {
            "tagDescriptions": _descriptions(images),
            "tagRunSampledInfo": _image_counts(images),
        },
    }
    return json_answers.json_response(request, content)


def list_scalars(source: Source, request: Request) -> Response:
    """Answer `scalars/tags` with {run: {tag: {displayName, description}}}.

    Descriptions are HTML. Raises NeedsProcess outside a handler process if there are any.
    """
    entries: dict[bytes, bytes] = {}

    def encode(groups: Sequence[TagGroup]) -> bytes:
        entries.update(
            (group.summary_metadata, _display_entry(group))
            for group in groups
            if group.summary_metadata not in entries
        )
        pairs = ((tag, entries[group.summary_metadata]) for group in groups for tag in group.tags)
        return b"{" + b",".join(orjson.dumps(tag) + b":" + entry for tag, entry in pairs) + b"}"

    groups = _read_groups(source, _SCALARS)
    _require_process_for_descriptions(request, groups)
    return json_answers.json_response(request, _encode_by_run(groups, encode))


def _require_process_for_descriptions(request: Request, groups: Iterable[TagGroup]) -> None:
    """Raise NeedsProcess outside a handler process if a group has a description: it is Markdown."""
    if any(_description(metadata) for metadata in {group.summary_metadata for group in groups}):
        require_process(request)


def _description(summary_metadata: bytes) -> str:
    return SummaryMetadata.FromString(summary_metadata).summary_description


def _read_groups(source: Source, *kinds: tuple[str, DataClass]) -> list[TagGroup]:
    """Return the tag groups of these (plugin, data class) pairs.

    Tags whose metadata have a version that this TensorBoard does not support are left out, as in
    `_filter_by_version` of `metrics_plugin.py`; the group, and so the run, remains.
    """
    groups = source.list_tag_groups(kinds)
    is_supported = {
        (plugin, metadata): _is_supported(plugin, metadata)
        for plugin, metadata in {(group.plugin, group.summary_metadata) for group in groups}
    }
    return [
        group if is_supported[group.plugin, group.summary_metadata] else replace(group, tags=())
        for group in groups
    ]


def _is_supported(plugin: str, summary_metadata: bytes) -> bool:
    """Return whether this TensorBoard can show a series with this metadata."""
    try:
        metadata = _PARSE[plugin](SummaryMetadata.FromString(summary_metadata).plugin_data.content)
    except DecodeError:  # the stock handlers fail for all series then
        return False
    return bool(metadata.version == 0)


def _display_entry(group: TagGroup) -> bytes:
    metadata = SummaryMetadata.FromString(group.summary_metadata)
    description = plugin_util.markdown_to_safe_html(metadata.summary_description)
    return orjson.dumps({"displayName": metadata.display_name, "description": description})


def _encode_by_run(
    groups: Iterable[TagGroup], encode: Callable[[Sequence[TagGroup]], bytes]
) -> dict[str, orjson.Fragment]:
    """Return {run: JSON of its groups}; calls `encode` once for all runs with the same groups."""
    by_run: dict[str, list[TagGroup]] = {}
    for group in groups:
        by_run.setdefault(group.run, []).append(group)

    encoded: dict[tuple[tuple[bytes, tuple[str, ...]], ...], orjson.Fragment] = {}
    fragments = {}
    for run, run_groups in by_run.items():
        key = tuple((group.summary_metadata, group.tags) for group in run_groups)
        if key not in encoded:
            encoded[key] = orjson.Fragment(encode(run_groups))
        fragments[run] = encoded[key]
    return fragments


def _run_tags(groups: Iterable[TagGroup]) -> dict[str, orjson.Fragment]:
    """Return {run: [tag]}, tags sorted."""

    def encode(run_groups: Sequence[TagGroup]) -> bytes:
        if len(run_groups) == 1:  # most: those of a group are sorted
            return orjson.dumps(list(run_groups[0].tags))  # of a tuple, ten times as slow
        return orjson.dumps(sorted(tag for group in run_groups for tag in group.tags))

    return _encode_by_run(groups, encode)


def _image_counts(groups: Iterable[TagGroup]) -> dict[str, dict[str, dict[str, int]]]:
    """Return {tag: {run: {maxSamplesPerStep}}}."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for group in groups:
        # Not strict: `_read_groups` removes the tags of unsupported groups, but not their lengths.
        for tag, length in zip(group.tags, group.lengths_max, strict=False):
            counts.setdefault(tag, {})[group.run] = {
                "maxSamplesPerStep": length - _BLOBS_BEFORE_IMAGES
            }
    return counts


def _descriptions(groups: Iterable[TagGroup]) -> dict[str, str]:
    """Return {tag: description as HTML}; if runs have different ones, all of them combined."""
    described: dict[str, dict[str, SimpleNamespace]] = {}
    for group in groups:
        description = _description(group.summary_metadata)
        if description:
            described.setdefault(group.run, {}).update(
                dict.fromkeys(group.tags, SimpleNamespace(description=description))
            )

    # The stock function combines them; it has no public name.
    html: dict[str, str] = metrics_plugin._get_tag_to_description(described)  # noqa: SLF001
    return html
