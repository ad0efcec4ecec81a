"""Several experiments read as one: every run's name begins with the name of its experiment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.reading import blobs, catalog
from tbservice.reading.catalog import ByRunAndTag
from tbservice.reading.source import ExperimentReader, PointTuple
from tbservice.reading.tag_groups import TagGroup
from tbservice.store.objects import ObjectStore
from tbservice.types import (
    Blob,
    BlobSequenceSample,
    DataClass,
    Experiment,
    Run,
    ScalarSample,
    Selection,
    Series,
    TensorSample,
)
from tbwire.hparams_pb2 import HParamsPluginData
from tbwire.tensorboard_pb2 import SummaryMetadata

_SESSION_START: Final = ("hparams", "_hparams_/session_start_info")
"""Plugin and tag of the series that holds a session's hyperparameters: tensorboard/plugins/hparams/metadata.py."""

_ROOT_RUN: Final = "."
"""The run whose files are in the logdir itself: in a comparison it has the bare name of its experiment."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ComparisonReader:
    """The source that is several experiments, by name and in their order; there is a grant for each of them."""

    experiment_id: str
    readers: Mapping[str, ExperimentReader]

    @property
    def objects(self) -> ObjectStore:
        """Where the bytes of all their blobs are."""
        return next(iter(self.readers.values())).objects

    def list_experiments(self) -> list[Experiment]:
        """The experiments that are compared."""
        return [
            experiment for part in self.readers.values() for experiment in part.list_experiments()
        ]

    def list_kinds(self) -> list[tuple[str, DataClass]]:
        """The kinds of series (plugin and data class) that any of the experiments has, by the plugin's name."""
        return sorted({kind for part in self.readers.values() for kind in part.list_kinds()})

    def list_runs(self) -> list[Run]:
        """Every run: the first experiment's, then the second's, each in the order in which they came."""
        return [
            replace(run, name=_comparison_run(name, run.name))
            for name, part in self.readers.items()
            for run in part.list_runs()
        ]

    def list_series(self, selection: Selection) -> list[Series]:
        """The selected series; those of HParams say what keeps the experiments' session groups apart."""
        return [
            namespace_group(replace(series, run=_comparison_run(name, series.run)), name)
            for name, part, own in self._select(selection)
            for series in part.list_series(own)
        ]

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """The series of these kinds, grouped; in the order of the runs."""
        return [
            replace(group, run=_comparison_run(name, group.run))
            for name, part in self.readers.items()
            for group in part.list_tag_groups(kinds)
        ]

    def list_last_points(self, selection: Selection) -> ByRunAndTag[PointTuple]:
        """The last point of each of the selected scalar series."""
        return self._read_merged(selection, ExperimentReader.list_last_points, lambda _points: None)

    def read_scalars(self, selection: Selection, downsample: int) -> ByRunAndTag[ScalarSample]:
        """A sample of every selected scalar series; TooLarge also when they are too much together."""
        return self._read_merged(
            selection, lambda part, own: part.read_scalars(own, downsample), _check_points
        )

    def read_tensors(self, selection: Selection, downsample: int) -> ByRunAndTag[TensorSample]:
        """A sample of every selected tensor series; TooLarge also when they are too much together."""
        return self._read_merged(
            selection, lambda part, own: part.read_tensors(own, downsample), _check_tensors
        )

    def read_blob_sequences(
        self, selection: Selection, downsample: int
    ) -> ByRunAndTag[BlobSequenceSample]:
        """A sample of every selected blob sequence series; TooLarge also when they are too much together."""
        return self._read_merged(
            selection, lambda part, own: part.read_blob_sequences(own, downsample), _check_points
        )

    def experiment_name_of(self, run: str) -> str:
        """The name of the experiment that has the run."""
        return run.partition("/")[
            0
        ]  # there is no slash in a name: it would not be one part of an address

    def find_blob(self, key: str) -> Blob:
        """The blob of this key, by the grant on the very experiment that the key bears; NotFound for any other."""
        return self._reader_of_blob(key).find_blob(key)

    def read_blob(self, key: str) -> bytes:
        """Return all bytes of the blob of this key; raises as `find_blob`, and TooLarge."""
        return self._reader_of_blob(key).read_blob(key)

    def cancel(self) -> None:
        """End the read under way, from any thread, and refuse those that follow."""
        for part in self.readers.values():
            part.cancel()

    def _reader_of_blob(self, key: str) -> ExperimentReader:
        experiment_id = blobs.parse_blob_experiment(key)
        parts = list(self.readers.values())
        # The first refuses what is none of theirs.
        return next((part for part in parts if part.grant.experiment_id == experiment_id), parts[0])

    def _select(self, selection: Selection) -> Iterator[tuple[str, ExperimentReader, Selection]]:
        """Each part that the selection reaches, its name, and the selection in the part's own words."""
        for name, part in self.readers.items():
            if selection.runs is None:
                yield name, part, selection
                continue
            runs = frozenset(
                run
                for run in (_experiment_run(name, run) for run in selection.runs)
                if run is not None
            )
            if runs:
                yield name, part, replace(selection, runs=runs)

    def _read_merged(
        self,
        selection: Selection,
        read: Callable[[ExperimentReader, Selection], ByRunAndTag[_T]],
        check: Callable[[ByRunAndTag[_T]], None],
    ) -> ByRunAndTag[_T]:
        merged: ByRunAndTag[_T] = {}
        for name, part, own in self._select(selection):
            merged |= {_comparison_run(name, run): tags for run, tags in read(part, own).items()}
            check(merged)
        return merged


def _comparison_run(name: str, run: str) -> str:
    return name if run == _ROOT_RUN else f"{name}/{run}"


def _experiment_run(name: str, run_in_comparison: str) -> str | None:
    """What a run is called in the experiment of this name; None for one of another experiment."""
    if run_in_comparison == name:
        return _ROOT_RUN
    run = run_in_comparison.removeprefix(f"{name}/")
    return None if run in {run_in_comparison, _ROOT_RUN} else run


def _check_points(samples: ByRunAndTag[ScalarSample] | ByRunAndTag[BlobSequenceSample]) -> None:
    points = sum(len(sample.steps) for tags in samples.values() for sample in tags.values())
    if points > limits.READ_POINTS_MAX:
        raise TooLarge(
            f"the experiments have over {limits.READ_POINTS_MAX} points together; compare fewer of them"
        )


def _check_tensors(samples: ByRunAndTag[TensorSample]) -> None:
    catalog.check_tensor_bytes(
        sum(
            one.size
            for tags in samples.values()
            for sample in tags.values()
            for one in sample.tensors
        )
    )


def namespace_group(series: Series, name: str) -> Series:
    """Return the series with its session group's name, where it has one, prefixed by the experiment's `name`.

    TensorBoard takes two groups of one name for one group. A session without a group is a group of its own, named like
    its run, which has that prefix already.
    """
    if (series.plugin, series.tag) != _SESSION_START:
        return series
    summary = SummaryMetadata.FromString(series.summary_metadata)
    content = HParamsPluginData()
    try:
        content.ParseFromString(summary.plugin_data.content)
    except DecodeError:  # what a client sent may be anything: the HParams dashboard says so
        return series
    if not content.session_start_info.group_name:
        return series
    content.session_start_info.group_name = f"{name}/{content.session_start_info.group_name}"
    summary.plugin_data.content = content.SerializeToString()
    return replace(series, summary_metadata=summary.SerializeToString())
