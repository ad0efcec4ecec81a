"""The formats in which points are answered: from parts of series to pieces of bytes, however many there are."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tbservice.api.formats.arrow import encode_arrow
from tbservice.api.formats.csv_format import encode_csv
from tbservice.api.formats.frames import encode_frames, table_frames
from tbservice.api.formats.json_format import encode_json
from tbservice.api.formats.parquet import encode_parquet
from tbservice.errors import NotAcceptable
from tbservice.reading.full_scan import LostPoint, Sample, SeriesChunk
from tbservice.types import DataClass, Json
from tbwire.frames import MEDIA_TYPE

RESPONSE_CHUNK_BYTES_MIN: Final = 256 * 1024
"""Bytes of a piece that is sent, at least, but for the last one: each costs a turn of a thread."""


class Format(enum.StrEnum):
    """What `?format=` may name."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    POINTS = "points"


MEDIA_TYPES: Final = {
    Format.JSON: "application/json",
    Format.CSV: "text/csv; charset=utf-8; header=present",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.ARROW: "application/vnd.apache.arrow.stream",
    Format.POINTS: MEDIA_TYPE,
}

_BY_MEDIA_TYPE: Final = {
    media_type.partition(";")[0]: one for one, media_type in MEDIA_TYPES.items()
}


def negotiate_format(requested: Format | None, accept: str | None) -> Format:
    """The format that was named, or the one that an `Accept` header likes best: JSON when it does not care.

    Raises NotAcceptable when it is content with none of ours.
    """
    if requested is not None:
        return requested
    if accept is None or not accept.strip():
        return Format.JSON
    ranges = {name: quality for name, quality in map(_parse_media_range, accept.split(","))}  # noqa: C416 - pairs, of a generator
    best = max(
        Format, key=lambda one: _quality_of(ranges, one)
    )  # the first of equals, and JSON is the first
    if _quality_of(ranges, best) <= 0:
        raise NotAcceptable(
            f"none of these is wanted: {', '.join(_BY_MEDIA_TYPE)}; name one in Accept, or ?format="
        )
    return best


def _parse_media_range(text: str) -> tuple[str, float]:
    """A media range and its quality; without one, or with one that is no number, it is 1."""
    name, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next(
        (
            value
            for key, _, value in (one.partition("=") for one in parameters)
            if key.strip() == "q"
        ),
        "1",
    )
    try:
        return name, float(quality)
    except ValueError:
        return name, 1.0


def _quality_of(ranges: dict[str, float], one: Format) -> float:
    """What the most specific range says of a format."""
    name = MEDIA_TYPES[one].partition(";")[0]
    for candidate in (name, f"{name.partition('/')[0]}/*", "*/*"):
        if candidate in ranges:
            return ranges[candidate]
    return 0.0


def encode_points(
    target: Format,
    data_class: DataClass,
    chunks: Iterable[SeriesChunk],
    sampling: str,
    as_json: Callable[[Sample], Json],
) -> Iterator[bytes]:
    """The parts as pieces of one answer, of about RESPONSE_CHUNK_BYTES_MIN; `sampling` is the rule by which points were chosen.

    `as_json` gives a sample's columns and what else is said of it. When the parts end with an error, so does this, and
    an answer that was sent up to there is not a whole one by its own format or by HTTP's.
    """
    return coalesce(_encode(target, data_class, chunks, sampling, as_json))


def encode_naming_lost(
    chosen: Format,
    data_class: DataClass,
    parts: Iterable[SeriesChunk],
    lost: deque[LostPoint],
    sampling: str,
    as_json: Callable[[Sample], Json],
) -> Iterator[bytes]:
    """The same as frames, with the format's bytes in them, and with the points that are put into `lost` meanwhile."""
    if chosen is Format.POINTS:
        return coalesce(encode_frames(parts, sampling, lost))

    def encode_table(counted: Iterable[SeriesChunk]) -> Iterator[bytes]:
        return encode_points(chosen, data_class, counted, sampling, as_json)

    return coalesce(table_frames(parts, encode_table, sampling, lost))


def _encode(
    target: Format,
    data_class: DataClass,
    chunks: Iterable[SeriesChunk],
    sampling: str,
    as_json: Callable[[Sample], Json],
) -> Iterator[bytes]:
    match target:
        case Format.JSON:
            return encode_json(chunks, as_json)
        case Format.CSV:
            return encode_csv(chunks, data_class, as_json)
        case Format.PARQUET:
            return encode_parquet(chunks, data_class, sampling)
        case Format.ARROW:
            return encode_arrow(chunks, data_class, sampling)
        case Format.POINTS:
            return encode_frames(chunks, sampling)


def coalesce(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are worth sending."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= RESPONSE_CHUNK_BYTES_MIN:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
