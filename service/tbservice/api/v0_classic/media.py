"""Images and clips of a series, one after the other in the order of writing, and the one blob of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection

from tbservice.errors import NotFound
from tbservice.reading import catalog, reservoir
from tbservice.store.objects import ObjectStore
from tbservice.types import Blob, ReadGrant, Selection, Series

_SIZES: Final = 2
"""An image's sequence begins with its width and its height, in decimal."""

_SIZE_BYTES_MAX: Final = 20
_UNKNOWN_SIZE: Final = 0


@dataclass(frozen=True, slots=True)
class Clip:
    """One blob of a step; `wall_time` in seconds since the epoch.

    `content_type` is what was logged with it, or what it is served as where nothing was: data, and never a header.
    """

    step: int
    wall_time: float
    content_type: str
    blob: Blob


@dataclass(frozen=True, slots=True)
class Image(Clip):
    """One image of a step; its width and height in pixels are blobs, too."""

    width: Blob
    height: Blob


C = TypeVar("C", bound=Clip)


def list_images(db: Connection, grant: ReadGrant, run: str, tag: str, size: int) -> list[Image]:
    """At most `size` images, of whichever steps."""
    written = _read(db, grant, run, tag, "images", size, _SIZES)
    return [
        Image(item.step, item.wall_time, _content_type(item), item.blob, *item.head)
        for item in written
    ]


def list_clips(db: Connection, grant: ReadGrant, run: str, tag: str, size: int) -> list[Clip]:
    """At most `size` clips, of whichever steps."""
    written = _read(db, grant, run, tag, "audio", size, 0)
    return [Clip(item.step, item.wall_time, _content_type(item), item.blob) for item in written]


def read_sizes(objects: ObjectStore, images: Sequence[Image]) -> dict[str, int]:
    """Pixels by the SHA-256 of the blob that says them; 0 where it says nothing of the kind."""
    blobs = {blob.sha256: blob for image in images for blob in (image.width, image.height)}
    return {digest: _pixels(objects, blob) for digest, blob in blobs.items()}


def get_clip(clips: Sequence[C], index: int) -> C:
    """The clip at this position of its list. Raises NotFound."""
    if index >= len(clips):
        raise NotFound(f"there are {len(clips)}, counted from 0: ask for the list again")
    return clips[index]


def get_graph_series(db: Connection, grant: ReadGrant, run: str) -> Series:
    """The series that holds the run's graph. Raises NotFound."""
    found = catalog.list_series(db, grant, Selection("graphs", runs=frozenset({run})))
    if not found:
        raise NotFound("this run has no graph, or there is no such run")
    return found[0]


def get_run_metadata_series(db: Connection, grant: ReadGrant, run: str, tag: str) -> Series:
    """The series that holds the metadata of a `session.run()`, in either way of logging it. Raises NotFound."""
    return reservoir.get_series(
        db, grant, run, tag, ("graph_run_metadata", "graph_tagged_run_metadata")
    )


def get_last_blob(db: Connection, grant: ReadGrant, series: Series) -> Blob:
    """The first blob of what was written last to the series. Raises NotFound."""
    written = reservoir.read_blobs(db, grant, series, reservoir.reservoir(1))
    if not written or not written[0].blobs:
        raise NotFound("there is nothing in it")
    return written[0].blobs[0]


def _read(
    db: Connection, grant: ReadGrant, run: str, tag: str, plugin: str, size: int, head_length: int
) -> list[reservoir.BlobItem]:
    series = reservoir.get_series(db, grant, run, tag, [plugin])
    return reservoir.read_blob_items(db, grant, series, reservoir.reservoir(size), head_length)


def _content_type(item: reservoir.BlobItem) -> str:
    return item.logged_content_type or item.blob.content_type


def _pixels(objects: ObjectStore, blob: Blob) -> int:
    if blob.size > _SIZE_BYTES_MAX:
        return _UNKNOWN_SIZE
    text = b"".join(objects.read(blob.object_key, 0, blob.size))
    return int(text) if text.isdigit() else _UNKNOWN_SIZE
