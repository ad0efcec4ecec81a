"""`timeseries/tags` and `scalars/tags`: which tags each run has, in time that grows with the runs and not the series.

Most runs have the tags of the run before: what such runs have in common is read, sorted and written once.
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

from tbservice.reading.source import Source
from tbservice.reading.tag_groups import TagGroup
from tbservice.tensorboard.native import json_answers
from tbservice.tensorboard.native.confinement import require_process
from tbservice.types import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata

_SCALARS: Final = (scalar_metadata.PLUGIN_NAME, DataClass.SCALAR)
_HISTOGRAMS: Final = (histogram_metadata.PLUGIN_NAME, DataClass.TENSOR)
_IMAGES: Final = (image_metadata.PLUGIN_NAME, DataClass.BLOB_SEQUENCE)
_BLOBS_BEFORE_IMAGES: Final = 2
"""Before its images, an image summary has their width and their height."""

_PARSE: Final[dict[str, Callable[[bytes], Any]]] = {
    scalar_metadata.PLUGIN_NAME: scalar_metadata.parse_plugin_metadata,
    histogram_metadata.PLUGIN_NAME: histogram_metadata.parse_plugin_metadata,
    image_metadata.PLUGIN_NAME: image_metadata.parse_plugin_metadata,
}


def list_metrics(source: Source, request: Request) -> Response:
    """`timeseries/tags`: the tags of all that the Time Series dashboard shows."""
    found = _read_groups(source, _SCALARS, _HISTOGRAMS, _IMAGES)
    _require_process_for_descriptions(request, found)
    scalars, histograms, images = (
        [group for group in found if (group.plugin, group.data_class) == kind]
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
    """`scalars/tags`: {run: {tag: {displayName, description}}}, the description as HTML."""
    shown: dict[bytes, bytes] = {}

    def write(groups: Sequence[TagGroup]) -> bytes:
        shown.update(
            (one.summary_metadata, _display_entry(one))
            for one in groups
            if one.summary_metadata not in shown
        )
        pairs = ((tag, shown[one.summary_metadata]) for one in groups for tag in one.tags)
        return b"{" + b",".join(orjson.dumps(tag) + b":" + about for tag, about in pairs) + b"}"

    found = _read_groups(source, _SCALARS)
    _require_process_for_descriptions(request, found)
    return json_answers.json_response(request, _encode_by_run(found, write))


def _require_process_for_descriptions(request: Request, groups: Iterable[TagGroup]) -> None:
    """Raises NeedsProcess where there are descriptions: they are Markdown."""
    if any(_description(metadata) for metadata in {one.summary_metadata for one in groups}):
        require_process(request)


def _description(summary_metadata: bytes) -> str:
    return SummaryMetadata.FromString(summary_metadata).summary_description


def _read_groups(source: Source, *kinds: tuple[str, DataClass]) -> list[TagGroup]:
    """What there is of these kinds; the tags are left out that were logged for a later TensorBoard."""
    found = source.list_tag_groups(kinds)
    known = {
        kind: _is_known(*kind) for kind in {(one.plugin, one.summary_metadata) for one in found}
    }
    return [
        one if known[one.plugin, one.summary_metadata] else replace(one, tags=()) for one in found
    ]


def _is_known(plugin: str, summary_metadata: bytes) -> bool:
    """Whether this TensorBoard can show a series with this metadata."""
    try:
        metadata = _PARSE[plugin](SummaryMetadata.FromString(summary_metadata).plugin_data.content)
    except DecodeError:  # the stock handlers answer nothing at all then
        return False
    return bool(metadata.version == 0)


def _display_entry(group: TagGroup) -> bytes:
    metadata = SummaryMetadata.FromString(group.summary_metadata)
    description = plugin_util.markdown_to_safe_html(metadata.summary_description)
    return orjson.dumps({"displayName": metadata.display_name, "description": description})


def _encode_by_run(
    groups: Iterable[TagGroup], write: Callable[[Sequence[TagGroup]], bytes]
) -> dict[str, orjson.Fragment]:
    """Each run with its groups as `write` writes them, once for all runs that have the same."""
    by_run: dict[str, list[TagGroup]] = {}
    for one in groups:
        by_run.setdefault(one.run, []).append(one)
    written: dict[tuple[tuple[bytes, tuple[str, ...]], ...], orjson.Fragment] = {}
    answer = {}
    for run, of_run in by_run.items():
        key = tuple((one.summary_metadata, one.tags) for one in of_run)
        if key not in written:
            written[key] = orjson.Fragment(write(of_run))
        answer[run] = written[key]
    return answer


def _run_tags(groups: Iterable[TagGroup]) -> dict[str, orjson.Fragment]:
    """{run: [tag, sorted]}."""
    return _encode_by_run(
        groups, lambda of_run: orjson.dumps(sorted(tag for one in of_run for tag in one.tags))
    )


def _image_counts(groups: Iterable[TagGroup]) -> dict[str, dict[str, dict[str, int]]]:
    """{tag: {run: {maxSamplesPerStep}}}."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for one in groups:
        for tag, length in zip(
            one.tags, one.lengths_max, strict=False
        ):  # a group that is left out has no tags
            counts.setdefault(tag, {})[one.run] = {
                "maxSamplesPerStep": length - _BLOBS_BEFORE_IMAGES
            }
    return counts


def _descriptions(groups: Iterable[TagGroup]) -> dict[str, str]:
    """{tag: description as HTML}; where runs differ, what each of them says."""
    described: dict[str, dict[str, SimpleNamespace]] = {}
    for one in groups:
        description = _description(one.summary_metadata)
        if description:
            described.setdefault(one.run, {}).update(
                dict.fromkeys(one.tags, SimpleNamespace(description=description))
            )
    # The stock handler's own words for runs that differ: it has no public name.
    html: dict[str, str] = metrics_plugin._get_tag_to_description(described)  # noqa: SLF001
    return html
