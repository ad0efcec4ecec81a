"""The source of a TensorBoard page that is a single experiment; see `comparison.Source`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.database import Database
from tbservice.errors import TooLarge
from tbservice.experiment_values import ExperimentNotes
from tbservice.experiments import lifecycle
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import (
    attempts,
    blobs,
    catalog,
    full_scan,
    loaded_chunks,
    tag_groups,
    tensor_objects,
)
from tbservice.reading.attempts import RunAttempts
from tbservice.reading.cancellation import Cancellation
from tbservice.reading.full_scan import SeriesChunk
from tbservice.reading.tag_groups import TagGroup
from tbservice.samples import BlobSequenceSample, Samples, ScalarSample, TensorSample
from tbservice.types.experiments import Experiment
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Sampling, Selection
from tbservice.types.series import Blob, Run, Series
from tbwire.points import DataClass

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ExperimentReader:
    """The data of one experiment. Each call reads in its own snapshot.

    With `attempt=K`, runs that were restarted later are read as of just before attempt K + 1.
    Listings, and the counts in them, ignore it. Reads of points raise NotFound if no run has so
    many.
    """

    grant: ReadGrant
    database: Database
    objects: ObjectStore
    cancellation: Cancellation = field(default_factory=Cancellation, compare=False)
    attempt: int | None = None

    @property
    def experiment_id(self) -> str:
        """Return the id of the grant's experiment, and the attempt if there is one."""
        suffix = "" if self.attempt is None else f"@{self.attempt}"
        return f"{self.grant.experiment_id}{suffix}"

    def list_attempts(self) -> list[RunAttempts]:
        """Return the attempts of runs that have several."""
        return self.read(attempts.list_attempts)

    def list_experiments(self) -> list[Experiment]:
        """Return a list of this experiment only."""
        return [self.read(lifecycle.get_experiment)]

    def read_notes(self, experiment: Experiment) -> ExperimentNotes:
        """Return what is written about this experiment. Raises NotFound if it was deleted."""
        return self.read(lambda db, grant: lifecycle.get_notes(db, experiment, grant))

    def is_published(self, experiment: Experiment) -> bool:
        """Return whether search engines may list the page of this experiment."""
        return self.read(lambda db, _grant: lifecycle.is_published(db, experiment))

    def list_kinds(self) -> list[tuple[str, DataClass]]:
        """Return the kinds of series (plugin and data class), ordered by plugin."""
        return self.read(catalog.list_kinds)

    def list_runs(self) -> list[Run]:
        """Return all runs in order of creation."""
        return self.read(catalog.list_runs)

    def list_series(self, selection: Selection) -> list[Series]:
        """Return the selected series without reading points."""
        return self.read(catalog.list_series, selection)

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """Return the tag groups of these kinds of series, in the order of the runs."""
        return tag_groups.group_tags(self.read(tag_groups.read_tag_group_rows, kinds))

    def read_scalars(self, selection: Selection, downsample: int) -> Samples[ScalarSample]:
        """Return at most `downsample` points of each series, in step order."""
        return self.read(catalog.read_scalars, selection, Sampling(k=downsample), self.attempt)

    def read_tensors(self, selection: Selection, downsample: int) -> Samples[TensorSample]:
        """Return at most `downsample` points of each series, in step order."""
        sampling = Sampling(k=downsample)
        samples = self.read(catalog.read_tensors, selection, sampling, self.attempt)
        return tensor_objects.load_samples(self.objects, samples)

    def read_blob_sequences(
        self, selection: Selection, downsample: int
    ) -> Samples[BlobSequenceSample]:
        """Return at most `downsample` points of each series, in step order, as blob keys."""
        return self.read(
            catalog.read_blob_sequences,
            selection,
            Sampling(k=downsample),
            catalog.ALL_BLOBS,
            self.attempt,
        )

    def stream_all(self, data_class: DataClass) -> Iterator[SeriesChunk]:
        """Yield all points of a data class in chunks, which are read as they are consumed."""
        chunks = full_scan.stream_all(
            self.database, self.grant, Selection(), data_class, attempt=self.attempt
        )
        return loaded_chunks.load_tensors(self.objects, chunks)

    def find_blob(self, key: str) -> Blob:
        """Return the blob with this key. Raises NotFound for any but this experiment's."""
        return self.read(blobs.find_blob, key)

    def read_blob(self, key: str) -> bytes:
        """Return all bytes of the blob. Raises TooLarge over `GRAPH_TEXT_BYTES_MAX` bytes.

        Only graphs are read at once; the bytes of other blobs are streamed.
        """
        blob = self.find_blob(key)
        if blob.size > limits.GRAPH_TEXT_BYTES_MAX:
            limit = f"the limit of {limits.GRAPH_TEXT_BYTES_MAX} bytes (graph_text_bytes_max)"
            raise TooLarge(
                f"the blob has {blob.size} bytes, over {limit}; read it from /api/v1/blobs"
            )
        self.cancellation.check()
        return b"".join(self.objects.read(blob.object_key, 0, blob.size))

    def cancel(self) -> None:
        """Cancel the current read, from any thread, and refuse later ones."""
        self.cancellation.cancel()

    def read(
        self,
        function: Callable[Concatenate[Connection, ReadGrant, _Parameters], _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Call a read function in its own snapshot, which `cancel` cancels.

        Raises Unavailable when `cancel` was called.
        """
        self.cancellation.check()
        with (
            self.database.snapshot(self.grant) as db,
            self.cancellation.cancellable(lambda: self.database.cancel(db)),
        ):
            return function(db, self.grant, *args, **kwargs)
