"""What a request may read: one experiment (`ExperimentReader`), or several side by side, to which `Source` is the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.experiments import lifecycle
from tbservice.reading import blobs, catalog, full_scan, tag_groups, tensor_objects
from tbservice.reading.cancellation import Cancellation
from tbservice.reading.catalog import ByRunAndTag
from tbservice.reading.full_scan import SeriesChunk
from tbservice.reading.tag_groups import TagGroup
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import (
    Blob,
    BlobSequenceSample,
    DataClass,
    Experiment,
    ReadGrant,
    Run,
    Sampling,
    ScalarSample,
    Selection,
    Series,
    TensorSample,
)

PointTuple = tuple[int, float, float]
"""Step, wall time and value."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Source(Protocol):
    """What handlers read from; each method is the one of the domain that has its name, and raises as that does."""

    @property
    def experiment_id(self) -> str:
        """What stock handlers are told to ask for; nothing is looked up by it."""

    @property
    def objects(self) -> ObjectStore:
        """Where the bytes of blobs are."""

    def list_experiments(self) -> list[Experiment]:
        """The experiments that are read."""

    def list_kinds(self) -> list[tuple[str, DataClass]]:
        """The kinds of series (plugin and data class) that there are."""

    def list_runs(self) -> list[Run]:
        """Every run, in an order that only ever grows at its end."""

    def list_series(self, selection: Selection) -> list[Series]:
        """The selected series."""

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """The series of these kinds, grouped."""

    def list_last_points(self, selection: Selection) -> ByRunAndTag[PointTuple]:
        """The last point of each of the selected scalar series."""

    def read_scalars(self, selection: Selection, downsample: int) -> ByRunAndTag[ScalarSample]:
        """A sample of every selected scalar series."""

    def read_tensors(self, selection: Selection, downsample: int) -> ByRunAndTag[TensorSample]:
        """A sample of every selected tensor series."""

    def read_blob_sequences(
        self, selection: Selection, downsample: int
    ) -> ByRunAndTag[BlobSequenceSample]:
        """A sample of every selected blob sequence series."""

    def find_blob(self, key: str) -> Blob:
        """The blob that a key names; NotFound for one that may not be read here."""

    def read_blob(self, key: str) -> bytes:
        """Return all bytes of the blob that a key names; raises as `find_blob`, and TooLarge."""

    def cancel(self) -> None:
        """End the read under way, from any thread, and refuse those that follow."""


@dataclass(frozen=True, slots=True)
class ExperimentReader:
    """The source that is one experiment: who reads, and from where. Each call reads one consistent view of it."""

    grant: ReadGrant
    database: Database
    objects: ObjectStore
    cancellation: Cancellation = field(default_factory=Cancellation, compare=False)

    @property
    def experiment_id(self) -> str:
        """The id of the grant's experiment."""
        return self.grant.experiment_id

    def list_experiments(self) -> list[Experiment]:
        """The experiment alone."""
        return [self.read(lifecycle.get_experiment)]

    def list_kinds(self) -> list[tuple[str, DataClass]]:
        """The kinds of series (plugin and data class) that there are, by the plugin's name."""
        return self.read(catalog.list_kinds)

    def list_runs(self) -> list[Run]:
        """Every run, in the order in which they came."""
        return self.read(catalog.list_runs)

    def list_series(self, selection: Selection) -> list[Series]:
        """The selected series, without a look at their points."""
        return self.read(catalog.list_series, selection)

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """The series of these kinds, grouped; in the order of the runs."""
        return tag_groups.group_tags(self.read(tag_groups.read_tag_group_rows, kinds))

    def list_last_points(self, selection: Selection) -> ByRunAndTag[PointTuple]:
        """The point with the greatest step of each of the selected scalar series; no points are read for it."""
        points: ByRunAndTag[PointTuple] = {}
        for one in self.read(tag_groups.list_last_points, selection):
            points.setdefault(one.run, {})[one.tag] = (one.step, one.wall_time, one.value)
        return points

    def read_scalars(self, selection: Selection, downsample: int) -> ByRunAndTag[ScalarSample]:
        """At most `downsample` points of each series, in step order."""
        return self.read(catalog.read_scalars, selection, Sampling(k=downsample))

    def read_tensors(self, selection: Selection, downsample: int) -> ByRunAndTag[TensorSample]:
        """At most `downsample` points of each series, in step order."""
        samples = self.read(catalog.read_tensors, selection, Sampling(k=downsample))
        return tensor_objects.load_samples(self.objects, samples)

    def read_blob_sequences(
        self, selection: Selection, downsample: int
    ) -> ByRunAndTag[BlobSequenceSample]:
        """At most `downsample` points of each series, in step order; a point is the keys of its blobs."""
        return self.read(catalog.read_blob_sequences, selection, Sampling(k=downsample))

    def stream_all(self, data_class: DataClass) -> Iterator[SeriesChunk]:
        """All points of a data class in parts, each read when the one before was taken."""
        parts = full_scan.stream_all(self.database, self.grant, Selection(), data_class)
        return full_scan.load_tensors(self.objects, parts)

    def find_blob(self, key: str) -> Blob:
        """The experiment's blob of this key; NotFound for any other."""
        return self.read(blobs.find_blob, key)

    def read_blob(self, key: str) -> bytes:
        """Return all bytes of the blob; TooLarge over `GRAPH_TEXT_BYTES_MAX`: only graphs are read in one piece."""
        blob = self.find_blob(key)
        if blob.size > limits.GRAPH_TEXT_BYTES_MAX:
            most = f"{limits.GRAPH_TEXT_BYTES_MAX} bytes (graph_text_bytes_max)"
            raise TooLarge(
                f"it has {blob.size} bytes, and at most {most} can be shown; read the blob itself instead"
            )
        self.cancellation.check()
        return b"".join(self.objects.read(blob.object_key, 0, blob.size))

    def cancel(self) -> None:
        """End the statement under way, from any thread, and let none follow."""
        self.cancellation.cancel()

    def read(
        self,
        function: Callable[Concatenate[Connection, ReadGrant, _Parameters], _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Return what a function of the domain reads, in a transaction of its own."""
        self.cancellation.check()
        with (
            self.database.snapshot(self.grant.workspace_id) as db,
            self.cancellation.cancellable(lambda: self.database.cancel(db)),
        ):
            return function(db, self.grant, *args, **kwargs)
