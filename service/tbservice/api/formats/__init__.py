"""Response formats for points: encoders from series chunks to byte chunks, and negotiation."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from tbservice.api.formats.columnar import write_arrow, write_parquet
from tbservice.api.formats.csv_format import encode_csv
from tbservice.api.formats.frames import encode_frames, table_frames
from tbservice.api.formats.json_format import encode_json
from tbservice.api.formats.tables import make_schema, record_batches
from tbservice.errors import NotAcceptable
from tbservice.reading.full_scan import SeriesChunk
from tbservice.reading.loaded_chunks import LostPoint
from tbwire.frames import MEDIA_TYPE
from tbwire.points import DataClass

RESPONSE_CHUNK_BYTES_MIN: Final = 256 * 1024
"""Minimum size of a byte chunk except the last: each one costs a switch to a worker thread."""


class Format(enum.StrEnum):
    """Values of the query parameter `format`."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    POINTS = "points"


# IANA media types; `header=present` is a parameter of text/csv (RFC 4180, section 3).
MEDIA_TYPES: Final = {
    Format.JSON: "application/json",
    Format.CSV: "text/csv; charset=utf-8; header=present",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.ARROW: "application/vnd.apache.arrow.stream",
    Format.POINTS: MEDIA_TYPE,
}

_BY_MEDIA_TYPE: Final = {
    media_type.partition(";")[0]: format_ for format_, media_type in MEDIA_TYPES.items()
}


def negotiate_format(requested: Format | None, accept: str | None) -> Format:
    """Return the requested format, or the one that an `Accept` header prefers; JSON by default.

    Follows RFC 9110, section 12.5.1: the most specific media range determines the quality of a
    format. Raises NotAcceptable when all formats have quality 0.
    """
    if requested is not None:
        return requested
    if accept is None or not accept.strip():
        return Format.JSON

    qualities = dict(_parse_media_range(media_range) for media_range in accept.split(","))
    # `max` returns the first of equal formats: JSON is the first member.
    best = max(Format, key=lambda format_: _quality_of(qualities, format_))
    if _quality_of(qualities, best) <= 0:
        raise NotAcceptable(
            f"Accept allows none of {', '.join(_BY_MEDIA_TYPE)}; add one of them, or use ?format="
        )
    return best


def _parse_media_range(text: str) -> tuple[str, float]:
    """Return a media range and its quality, 1 if that is absent or not a number."""
    name, *parameters = (field.strip().lower() for field in text.split(";"))
    quality = next(
        (
            value
            for key, _, value in (parameter.partition("=") for parameter in parameters)
            if key.strip() == "q"
        ),
        "1",
    )
    try:
        return name, float(quality)
    except ValueError:
        return name, 1.0


def _quality_of(qualities: dict[str, float], format_: Format) -> float:
    """Return the quality of the most specific media range that matches a format."""
    name = MEDIA_TYPES[format_].partition(";")[0]
    for candidate in (name, f"{name.partition('/')[0]}/*", "*/*"):
        if candidate in qualities:
            return qualities[candidate]
    return 0.0


def encode_points(
    target: Format,
    data_class: DataClass,
    chunks: Iterable[SeriesChunk],
    sampling: str,
    *,
    with_metadata: bool = False,
    lost: deque[LostPoint] | None = None,
) -> Iterator[bytes]:
    """Yield the body of a response in byte chunks of about RESPONSE_CHUNK_BYTES_MIN.

    An error of `chunks` is raised here too. A response that was sent up to there is recognizably
    truncated, by its own format or by the missing last chunk (RFC 9112, section 7.1).

    Args:
        target: Format of the response.
        data_class: Data class of all chunks.
        chunks: Chunks of series; those of one series are adjacent.
        sampling: Name of the sampling rule.
        with_metadata: Add the summary metadata of each series; `Format.POINTS` always has it.
        lost: Queue that `chunks` appends omitted points to. With it, the response is frames that
            also list these points; they contain the bytes of the target format
            (`frames.table_frames`), or the points themselves for `Format.POINTS`.
    """
    if lost is None:
        return coalesce(_encode(target, data_class, chunks, sampling, with_metadata=with_metadata))
    if target is Format.POINTS:
        return coalesce(encode_frames(chunks, sampling, lost))

    def encode_table(counted: Iterable[SeriesChunk]) -> Iterator[bytes]:
        return encode_points(target, data_class, counted, sampling, with_metadata=with_metadata)

    return coalesce(table_frames(chunks, encode_table, sampling, lost))


def _encode(
    target: Format,
    data_class: DataClass,
    chunks: Iterable[SeriesChunk],
    sampling: str,
    *,
    with_metadata: bool,
) -> Iterator[bytes]:
    match target:
        case Format.JSON:
            return encode_json(chunks, sampling, with_metadata=with_metadata)
        case Format.CSV:
            return encode_csv(chunks, data_class, with_metadata=with_metadata)
        case Format.POINTS:
            return encode_frames(chunks, sampling)
        case Format.PARQUET | Format.ARROW:
            schema = make_schema(data_class, sampling, with_metadata=with_metadata)
            write = write_parquet if target is Format.PARQUET else write_arrow
            return write(schema, record_batches(chunks, schema, data_class))


def coalesce(byte_chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in chunks of at least RESPONSE_CHUNK_BYTES_MIN, except for the last."""
    pending: list[bytes] = []
    size = 0
    for byte_chunk in byte_chunks:
        pending.append(byte_chunk)
        size += len(byte_chunk)
        if size >= RESPONSE_CHUNK_BYTES_MIN:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
