"""Images and audio clips of a series as flat lists, and the single blob of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection

from tbservice.errors import NotFound
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import catalog, reservoir
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbservice.types.series import Blob, Series
from tbwire.points import DataClass

_SIZE_BLOBS: Final = 2
"""The first blobs of an image's sequence are width and height, as decimal digits.

See `tensorboard/plugins/image/summary_v2.py`.
"""

_SIZE_BYTES_MAX: Final = 20
_UNKNOWN_SIZE: Final = 0


@dataclass(frozen=True, slots=True)
class Clip:
    """One blob of a step; `wall_time` is in seconds since the epoch.

    `content_type` is the logged one or, without one, the blob's own. It is text from the uploader:
    return it as data, never as a header.
    """

    step: int
    wall_time: float
    content_type: str
    blob: Blob


@dataclass(frozen=True, slots=True)
class Image(Clip):
    """One image of a step; `width` and `height` are blobs with the pixels in decimal digits."""

    width: Blob
    height: Blob


C = TypeVar("C", bound=Clip)


def list_images(db: Connection, grant: ReadGrant, run: str, tag: str, size: int) -> list[Image]:
    """Return at most `size` images of the series, by wall time; a step may have several."""
    items = _read_items(db, grant, run, tag, "images", size, _SIZE_BLOBS)
    return [
        Image(item.step, item.wall_time, _content_type(item), item.blob, *item.head)
        for item in items
    ]


def list_clips(db: Connection, grant: ReadGrant, run: str, tag: str, size: int) -> list[Clip]:
    """Return at most `size` audio clips of the series, by wall time; a step may have several."""
    items = _read_items(db, grant, run, tag, "audio", size, 0)
    return [Clip(item.step, item.wall_time, _content_type(item), item.blob) for item in items]


def read_sizes(objects: ObjectStore, images: Sequence[Image]) -> dict[str, int]:
    """Return the pixels in each width and height blob, by its SHA-256; 0 if it is not a number."""
    blobs = {blob.sha256: blob for image in images for blob in (image.width, image.height)}
    return {digest: _pixels(objects, blob) for digest, blob in blobs.items()}


def get_clip(clips: Sequence[C], index: int) -> C:
    """Return the clip at this index; raises NotFound if the list is shorter."""
    if index >= len(clips):
        raise NotFound(
            f"the index {index} is too high: the list has {len(clips)} items; request it again"
        )
    return clips[index]


def get_graph_series(db: Connection, grant: ReadGrant, run: str) -> Series:
    """Return the series with the run's graph; raises NotFound."""
    selection = Selection("graphs", runs=frozenset({run}), data_class=DataClass.BLOB_SEQUENCE)
    listed = catalog.list_series(db, grant, selection)
    if not listed:
        raise NotFound("the run has no graph, or it does not exist")
    return listed[0]


def get_run_metadata_series(db: Connection, grant: ReadGrant, run: str, tag: str) -> Series:
    """Return the series with the metadata of a `session.run()`; raises NotFound.

    Both plugins with run metadata are searched: `tensorboard/plugins/graph/metadata.py`.
    """
    plugins = ("graph_run_metadata", "graph_tagged_run_metadata")
    return reservoir.get_series(db, grant, run, tag, plugins, DataClass.BLOB_SEQUENCE)


def get_last_blob(db: Connection, grant: ReadGrant, series: Series) -> Blob:
    """Return the first blob of the series' last point; raises NotFound if there is none."""
    points = reservoir.read_blobs(db, grant, series, reservoir.reservoir(1))
    if not points or not points[0].blobs:
        raise NotFound("the series contains no blob")
    return points[0].blobs[0]


def _read_items(
    db: Connection, grant: ReadGrant, run: str, tag: str, plugin: str, size: int, head_length: int
) -> list[reservoir.BlobItem]:
    series = reservoir.get_series(db, grant, run, tag, [plugin], DataClass.BLOB_SEQUENCE)
    return reservoir.read_blob_items(db, grant, series, reservoir.reservoir(size), head_length)


def _content_type(item: reservoir.BlobItem) -> str:
    return item.logged_content_type or item.blob.content_type


def _pixels(objects: ObjectStore, blob: Blob) -> int:
    if blob.size > _SIZE_BYTES_MAX:
        return _UNKNOWN_SIZE
    text = b"".join(objects.read(blob.object_key, 0, blob.size))
    return int(text) if text.isdigit() else _UNKNOWN_SIZE
