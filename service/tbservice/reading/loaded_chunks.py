"""Load the tensors of series chunks, or leave out the points whose tensors cannot be loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import tensor_objects
from tbservice.reading.full_scan import SeriesChunk
from tbservice.samples import TensorSample
from tbservice.types.series import Series


@dataclass(frozen=True, slots=True)
class LostPoint:
    """A point that was omitted because its tensor cannot be loaded: `error` is the reason."""

    series: Series
    step: int
    error: ObjectMissing | ObjectUnreadable


def load_tensors(objects: ObjectStore, chunks: Iterable[SeriesChunk]) -> Iterator[SeriesChunk]:
    """Yield the same chunks with the bytes of every tensor, fetched chunk by chunk.

    Raises as `tensor_objects.load`; an ObjectMissing or ObjectUnreadable names run and tag.
    """
    for chunk in chunks:
        try:
            sample = tensor_objects.load_sample(objects, chunk.sample)
        except (ObjectMissing, ObjectUnreadable) as error:
            detail = (
                f"run {chunk.series.run[:100]!r}, tag {chunk.series.tag[:100]!r}: {error.detail}"
            )
            raise type(error)(detail) from error
        yield replace(chunk, sample=sample)


def load_intact_chunks(
    objects: ObjectStore, chunks: Iterable[SeriesChunk], on_lost: Callable[[LostPoint], None]
) -> Iterator[SeriesChunk]:
    """Yield the same chunks, loaded, without points of missing or unreadable tensors.

    Calls `on_lost` with each of these points before it yields their chunk, which may be empty.
    Requests each object only once, without retries: there may be many such points before the first
    byte can be sent. Raises Unavailable when S3 is unavailable.
    """
    for chunk in chunks:
        if isinstance(chunk.sample, TensorSample):
            yield replace(chunk, sample=_load_intact(objects, chunk.series, chunk.sample, on_lost))
        else:
            yield chunk


def _load_intact(
    objects: ObjectStore,
    series: Series,
    sample: TensorSample,
    on_lost: Callable[[LostPoint], None],
) -> TensorSample:
    intact: list[int] = []
    tensors = []
    for index, value in enumerate(sample.tensors):
        try:
            tensors.append(tensor_objects.load(objects, value, is_brief=True))
        except (ObjectMissing, ObjectUnreadable) as error:
            on_lost(LostPoint(series, int(sample.steps[index]), error))
        else:
            intact.append(index)

    if len(intact) == len(sample.tensors):
        return replace(sample, tensors=tensors)
    return replace(
        sample, steps=sample.steps[intact], wall_times=sample.wall_times[intact], tensors=tensors
    )
