"""Reads on behalf of handler processes, which have no access to database and object store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from sqlalchemy import Connection

from tbservice.experiments import lifecycle
from tbservice.handlers.job_loop import WorkerLink
from tbservice.reading import blobs, catalog, tag_groups
from tbservice.reading.comparison import ComparisonReader, Source
from tbservice.reading.source import ExperimentReader
from tbservice.reading.tag_groups import TagGroup
from tbservice.runs.grouped_reader import GroupedReader, GroupsQuery
from tbservice.samples import BlobSequenceSample, Samples, ScalarSample, TensorSample
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbservice.types.series import Run
from tbwire.points import DataClass

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ALLOWED_READS: Final[dict[str, Callable[..., Any]]] = {
    f"{function.__module__}.{function.__name__}": function
    for function in (
        blobs.find_blob,
        lifecycle.get_experiment,
        tag_groups.read_tag_group_rows,
        catalog.list_kinds,
        catalog.list_runs,
        catalog.list_series,
        catalog.read_scalars,
    )
}
"""The functions a handler process may call, by full name; always with the grant of its request."""


_GROUP_READS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        GroupedReader.list_runs,
        GroupedReader.list_tag_groups,
        GroupedReader.read_scalars,
    )
}
"""The methods of a source of groups that a handler process may call, by name."""


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A request's source as sent to a handler process: names and grants, no token, no connection.

    `readers` are (name in the comparison, grant, attempt); the name is empty for a single
    experiment. `groups` are those of its runs that the source shows.
    """

    experiment_id: str
    is_comparison: bool
    readers: Sequence[tuple[str, ReadGrant, int | None]]
    groups: GroupsQuery | None = None


def describe_source(source: Source) -> SourceDescription:
    """Return the description from which `open_remote_source` rebuilds the source."""
    readers = [
        (name, reader.grant, reader.attempt) for name, reader in _readers_by_name(source).items()
    ]
    groups = source.query if isinstance(source, GroupedReader) else None
    is_comparison = isinstance(source, ComparisonReader)
    return SourceDescription(source.experiment_id, is_comparison, readers, groups)


def make_calls(source: Source) -> Mapping[str, Callable[..., Any]]:
    """Return the functions that a handler process may call in the worker, bound to this source."""
    readers = _readers_by_name(source)

    def read(name: str, function: str, *arguments: Any) -> Any:
        return readers[name].read(_ALLOWED_READS[function], *arguments)

    def read_tensors(name: str, selection: Selection, downsample: int) -> Any:
        return readers[name].read_tensors(selection, downsample)

    def read_blob_sequences(name: str, selection: Selection, downsample: int) -> Any:
        return readers[name].read_blob_sequences(selection, downsample)

    def read_blob(name: str, key: str) -> bytes:
        return readers[name].read_blob(key)

    def read_groups(method: str, *arguments: Any) -> Any:
        return _GROUP_READS[method](source, *arguments)

    functions: list[Callable[..., Any]] = [read, read_tensors, read_blob_sequences, read_blob]
    if isinstance(source, GroupedReader):
        functions.append(read_groups)
    return {function.__name__: function for function in functions}


def open_remote_source(link: WorkerLink, about: SourceDescription) -> Source:
    """Rebuild the source in a handler process; it reads through `link`."""
    readers: dict[str, ExperimentReader] = {
        name: RemoteReader(grant, link, name, attempt) for name, grant, attempt in about.readers
    }
    if about.groups is not None:
        return RemoteGroups(about.experiment_id, readers, about.groups, link)
    if about.is_comparison:
        return ComparisonReader(about.experiment_id, readers)
    (reader,) = readers.values()
    return reader


class RemoteReader(ExperimentReader):
    """Reader of one experiment for a handler process: each read is a call to the worker.

    `name` identifies the reader in the calls. An error of the worker ends the process' job.
    """

    def __init__(self, grant: ReadGrant, link: WorkerLink, name: str, attempt: int | None) -> None:
        super().__init__(grant, cast("Any", None), cast("Any", None), attempt=attempt)
        object.__setattr__(self, "_link", link)  # the class is frozen
        object.__setattr__(self, "_name", name)

    def read(
        self,
        function: Callable[Concatenate[Connection, ReadGrant, _Parameters], _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Run one of the `_ALLOWED_READS` in the worker and return its result."""
        assert not kwargs  # noqa: S101 - none of the functions is called with any
        return cast(
            "_Result", self._call("read", f"{function.__module__}.{function.__name__}", *args)
        )

    def read_tensors(self, selection: Selection, downsample: int) -> Samples[TensorSample]:
        """Read tensor samples in the worker, with those tensors that are stored in S3."""
        return cast("Samples[TensorSample]", self._call("read_tensors", selection, downsample))

    def read_blob_sequences(
        self, selection: Selection, downsample: int
    ) -> Samples[BlobSequenceSample]:
        """Read blob sequence samples in the worker: processes may send no slice of indices."""
        samples = self._call("read_blob_sequences", selection, downsample)
        return cast("Samples[BlobSequenceSample]", samples)

    def read_blob(self, key: str) -> bytes:
        """Read the bytes of one blob in the worker."""
        return cast("bytes", self._call("read_blob", key))

    def _call(self, name: str, *arguments: Any) -> Any:
        link: WorkerLink = self._link  # type: ignore[attr-defined] # set in `__init__`
        return link.call(name, self._name, *arguments)  # type: ignore[attr-defined] # the same


@dataclass(frozen=True, slots=True)
class RemoteGroups(GroupedReader):
    """Reader of groups of runs for a handler process: the worker computes their curves."""

    link: WorkerLink

    def list_runs(self) -> list[Run]:
        """List the groups in the worker."""
        return cast("list[Run]", self.link.call("read_groups", "list_runs"))

    def list_tag_groups(self, kinds: Collection[tuple[str, DataClass]]) -> list[TagGroup]:
        """List the metrics of the groups in the worker."""
        listed = self.link.call("read_groups", "list_tag_groups", [(p, int(c)) for p, c in kinds])
        return cast("list[TagGroup]", listed)

    def read_scalars(self, selection: Selection, downsample: int) -> Samples[ScalarSample]:
        """Compute curves in the worker."""
        samples = self.link.call("read_groups", "read_scalars", selection, downsample)
        return cast("Samples[ScalarSample]", samples)


def _readers_by_name(source: Source) -> Mapping[str, ExperimentReader]:
    if isinstance(source, ComparisonReader):
        return source.readers
    return {"": source}
