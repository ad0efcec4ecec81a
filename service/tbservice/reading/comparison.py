"""Comparisons: several experiments as one source, with runs prefixed by their experiment's name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import blobs, catalog
from tbservice.reading.source import ExperimentReader
from tbservice.reading.tag_groups import TagGroup
from tbservice.samples import BlobSequenceSample, Samples, ScalarSample, TensorSample
from tbservice.types.experiments import Experiment
from tbservice.types.sampling import Selection
from tbservice.types.series import Blob, Run, Series
from tbservice.waits import give_way
from tbwire.points import DataClass

COMPARISONS_GIVING_WAY_ITEMS_MAX: Final = 4
"""Comparisons (items) that give way at once in a worker: each keeps one of the pages' threads."""

_giving_way: Final = threading.BoundedSemaphore(COMPARISONS_GIVING_WAY_ITEMS_MAX)

_ROOT_RUN: Final = "."
"""The run of files directly in the logdir; in a comparison, its name is the experiment's alone."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ComparisonReader:
    """The source that is several experiments, by name, in order; each reader has its own grant."""

    experiment_id: str
    readers: Mapping[str, ExperimentReader]

    @property
    def objects(self) -> ObjectStore:
        """Return the object store with the bytes of all blobs."""
        return next(iter(self.readers.values())).objects

    @property
    def session_readers(self) -> Mapping[str, ExperimentReader]:
        """Return the readers of the experiments whose hyperparameters the source shows."""
        return self.readers

    def list_experiments(self) -> list[Experiment]:
        """Return the compared experiments."""
        return [
            experiment
            for reader in self.readers.values()
            for experiment in reader.list_experiments()
        ]

    def list_kinds(self) -> list[tuple[str, DataClass]]:
        """Return the kinds of series (plugin and data class) of all experiments, by plugin."""
        return sorted({kind for reader in self.readers.values() for kind in reader.list_kinds()})

    def list_runs(self) -> list[Run]:
        """Return all runs: by experiment, then in order of creation."""
        return [
            replace(run, name=name_in_comparison(name, run.name))
            for name, reader in self._in_turns()
            for run in reader.list_runs()
        ]

    def list_series(self, selection: Selection) -> list[Series]:
        """Return the selected series."""
        return [
            replace(series, run=name_in_comparison(name, series.run))
            for name, reader, reader_selection in self._select(selection)
            for series in reader.list_series(reader_selection)
        ]

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """Return the tag groups of these kinds of series, in the order of the runs."""
        return [
            replace(group, run=name_in_comparison(name, group.run))
            for name, reader in self._in_turns()
            for group in reader.list_tag_groups(kinds)
        ]

    def read_scalars(self, selection: Selection, downsample: int) -> Samples[ScalarSample]:
        """Return a sample of every selected scalar series; limits apply to the total."""
        return self._read_merged(
            selection, lambda reader, own: reader.read_scalars(own, downsample), _check_points
        )

    def read_tensors(self, selection: Selection, downsample: int) -> Samples[TensorSample]:
        """Return a sample of every selected tensor series; limits apply to the total."""
        return self._read_merged(
            selection, lambda reader, own: reader.read_tensors(own, downsample), _check_tensors
        )

    def read_blob_sequences(
        self, selection: Selection, downsample: int
    ) -> Samples[BlobSequenceSample]:
        """Return a sample of every selected blob sequence series; limits apply to the total."""
        return self._read_merged(
            selection,
            lambda reader, own: reader.read_blob_sequences(own, downsample),
            _check_points,
        )

    def find_blob(self, key: str) -> Blob:
        """Return the blob with this key, by the grant on the experiment that the key names.

        Raises NotFound for a key of any other experiment.
        """
        return self._reader_of_blob(key).find_blob(key)

    def read_blob(self, key: str) -> bytes:
        """Return all bytes of the blob with this key. Raises as `find_blob`, and TooLarge."""
        return self._reader_of_blob(key).read_blob(key)

    def cancel(self) -> None:
        """Cancel the current read, from any thread, and refuse later ones."""
        for reader in self.readers.values():
            reader.cancel()

    def _reader_of_blob(self, key: str) -> ExperimentReader:
        experiment_id = blobs.parse_blob_experiment(key)
        readers = list(self.readers.values())
        # The default refuses the key, as it is not its experiment's.
        return next((r for r in readers if r.grant.experiment_id == experiment_id), readers[0])

    def _in_turns(self) -> Iterator[tuple[str, ExperimentReader]]:
        """Yield name and reader of each experiment; others' requests may go before the next one."""
        for number, named in enumerate(self.readers.items()):
            if number and _giving_way.acquire(blocking=False):
                try:
                    give_way()
                finally:
                    _giving_way.release()
            yield named

    def _select(self, selection: Selection) -> Iterator[tuple[str, ExperimentReader, Selection]]:
        """Yield name and reader of each selected experiment, and the selection in its run names."""
        for name, reader in self._in_turns():
            if selection.runs is None:
                yield name, reader, selection
                continue
            runs = frozenset(
                run
                for run in (_experiment_run(name, run) for run in selection.runs)
                if run is not None
            )
            if runs:
                yield name, reader, replace(selection, runs=runs)

    def _read_merged(
        self,
        selection: Selection,
        read: Callable[[ExperimentReader, Selection], Samples[_T]],
        check: Callable[[Samples[_T]], None],
    ) -> Samples[_T]:
        merged: Samples[_T] = []
        for name, reader, reader_selection in self._select(selection):
            merged += [
                (replace(series, run=name_in_comparison(name, series.run)), sample)
                for series, sample in read(reader, reader_selection)
            ]
            check(merged)
        return merged


Source = ExperimentReader | ComparisonReader
"""Source of handlers' data: one experiment, or a comparison of several, with the same methods.

Stock handlers name it by its `experiment_id`, which the data provider compares with what they pass.
"""


def name_in_comparison(name: str, run: str) -> str:
    """Return what a run of the experiment `name` is called in a comparison."""
    return name if run == _ROOT_RUN else f"{name}/{run}"


def _experiment_run(name: str, run_in_comparison: str) -> str | None:
    """Return the run's name in the experiment of this name; None for another experiment's run."""
    if run_in_comparison == name:
        return _ROOT_RUN
    run = run_in_comparison.removeprefix(f"{name}/")
    return None if run in {run_in_comparison, _ROOT_RUN} else run


def _check_points(samples: Samples[ScalarSample] | Samples[BlobSequenceSample]) -> None:
    points = sum(len(sample.steps) for _, sample in samples)
    if points > limits.READ_POINTS_MAX:
        raise TooLarge(
            f"the samples of all experiments exceed {limits.READ_POINTS_MAX} points "
            "(read_points_max); compare fewer experiments"
        )


def _check_tensors(samples: Samples[TensorSample]) -> None:
    catalog.check_tensor_bytes(sum(value.size for _, sample in samples for value in sample.tensors))
