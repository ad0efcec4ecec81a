"""Reading from a handler process, which has neither a database nor an object store: the worker reads for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from sqlalchemy import Connection

from tbservice.experiments import lifecycle
from tbservice.handlers.job_loop import WorkerLink
from tbservice.reading import blobs, catalog, tag_groups
from tbservice.reading.catalog import ByRunAndTag
from tbservice.reading.comparison import ComparisonReader
from tbservice.reading.source import ExperimentReader, Source
from tbservice.types import ReadGrant, Selection, TensorSample

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_ALLOWED_READS: Final[dict[str, Callable[..., Any]]] = {
    f"{function.__module__}.{function.__name__}": function
    for function in (
        blobs.find_blob,
        lifecycle.get_experiment,
        tag_groups.list_last_points,
        tag_groups.read_tag_group_rows,
        catalog.list_kinds,
        catalog.list_runs,
        catalog.list_series,
        catalog.read_blob_sequences,
        catalog.read_scalars,
    )
}
"""What a process may have read for it, always of the experiments that its request was granted."""


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """What a handler process is told of a request's source: names and grants; no token, no connection."""

    experiment_id: str
    is_comparison: bool
    readers: Sequence[tuple[str, ReadGrant]]


def describe_source(source: Source) -> SourceDescription:
    """Return what `open_remote_source` makes the same source of in a handler process."""
    grants = [(name, reader.grant) for name, reader in _readers_by_name(source).items()]
    return SourceDescription(source.experiment_id, isinstance(source, ComparisonReader), grants)


def make_calls(source: Source) -> Mapping[str, Callable[..., Any]]:
    """Return what a handler process may ask of the worker while it answers a request for this source."""
    readers = _readers_by_name(source)

    def read(name: str, function: str, *arguments: Any) -> Any:
        return readers[name].read(_ALLOWED_READS[function], *arguments)

    def read_tensors(name: str, selection: Selection, downsample: int) -> Any:
        return readers[name].read_tensors(selection, downsample)

    def read_blob(name: str, key: str) -> bytes:
        return readers[name].read_blob(key)

    return {"read": read, "read_tensors": read_tensors, "read_blob": read_blob}


def open_remote_source(link: WorkerLink, about: SourceDescription) -> Source:
    """Return the source in a handler process."""
    readers: dict[str, ExperimentReader] = {
        name: RemoteReader(grant, link, name) for name, grant in about.readers
    }
    if about.is_comparison:
        return ComparisonReader(about.experiment_id, readers)
    (reader,) = readers.values()
    return reader


class RemoteReader(ExperimentReader):
    """One experiment as a handler process reads it."""

    def __init__(self, grant: ReadGrant, link: WorkerLink, name: str) -> None:
        """`name` is what the worker knows it by."""
        super().__init__(grant, cast("Any", None), cast("Any", None))
        object.__setattr__(self, "_link", link)  # the class is frozen
        object.__setattr__(self, "_name", name)

    def read(
        self,
        function: Callable[Concatenate[Connection, ReadGrant, _Parameters], _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Have the worker read; its error ends the job."""
        assert not kwargs  # noqa: S101 - none of the functions is called with any
        return cast(
            "_Result", self._call("read", f"{function.__module__}.{function.__name__}", *args)
        )

    def read_tensors(self, selection: Selection, downsample: int) -> ByRunAndTag[TensorSample]:
        """Have the worker read, and fetch what is in the object store; its error ends the job."""
        return cast("ByRunAndTag[TensorSample]", self._call("read_tensors", selection, downsample))

    def read_blob(self, key: str) -> bytes:
        """Have the worker read the blob; its error ends the job."""
        return cast("bytes", self._call("read_blob", key))

    def _call(self, name: str, *arguments: Any) -> Any:
        link: WorkerLink = self._link  # type: ignore[attr-defined] # set in `__init__`
        return link.call(name, self._name, *arguments)  # type: ignore[attr-defined] # the same


def _readers_by_name(source: Source) -> Mapping[str, ExperimentReader]:
    if isinstance(source, ComparisonReader):
        return source.readers
    assert isinstance(source, ExperimentReader)  # noqa: S101 - there is no other
    return {"": source}
