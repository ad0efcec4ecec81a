"""Comparison of an experiment with its copy, by the digests that the servers compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tbupload.console.texts import counted
from tbupload.errors import UploadError
from tbupload.http.client import Client

RUNS_PER_REQUEST_MAX: Final = 256
"""Runs in one request for digests, at most."""

NAME_CHARS_PER_REQUEST: Final = 50_000
"""Characters of run names in one request, approximately; the server accepts 1 MiB of JSON."""

DIFFERENCES_SHOWN: Final = 3
"""Series that an error names."""


@dataclass(frozen=True)
class StoredExperiment:
    """The runs of an experiment, and count and digests of each series by run and tag."""

    runs: frozenset[str]
    series: dict[tuple[str, str], tuple[str, str, int, str, str]]

    @property
    def points(self) -> int:
        """Return the number of its points."""
        return sum(count for _, _, count, _, _ in self.series.values())


def read_stored(client: Client, experiment_id: str) -> StoredExperiment:
    """Return what is stored of an experiment."""
    runs = client.list_runs(experiment_id)
    names = ("plugin", "data_class", "count", "sha256", "metadata_sha256")
    series = {
        (each["run"], each["tag"]): tuple(each[name] for name in names)
        for group in _groups(runs)
        for each in client.list_digests(experiment_id, group)
    }
    return StoredExperiment(frozenset(runs), series)


def check_equal(stored: StoredExperiment, copied: StoredExperiment) -> None:
    """Raise UploadError unless both have the same runs, and the same points in each series."""
    names = [
        f"run {run!r}, tag {tag!r}"
        for run, tag in stored.series.keys() | copied.series.keys()
        if stored.series.get((run, tag)) != copied.series.get((run, tag))
    ] or [f"run {run!r}" for run in stored.runs ^ copied.runs]
    if names:
        shown = "; ".join(sorted(names)[:DIFFERENCES_SHOWN])
        more = len(names) - DIFFERENCES_SHOWN
        raise UploadError(
            f"the copy differs: {shown}{f'; and {more:,} more' if more > 0 else ''}. Nothing was "
            "deleted. If the experiment has changed meanwhile, run the same command again"
        )


def check_objects(client: Client, experiment_id: str, runs: frozenset[str]) -> None:
    """Raise UploadError if the bytes of a blob of the copy are missing in its object store."""
    for group in _groups(sorted(runs)):
        for page in client.check_objects(experiment_id, group, is_deep=False):
            if page["faults"]:
                count = counted(len(page["faults"]), "blob")
                raise UploadError(f"{count} of the copy is not stored; nothing was deleted")


def _groups(runs: list[str]) -> Iterator[list[str]]:
    """Yield the runs of each request."""
    group: list[str] = []
    for run in runs:
        group.append(run)
        if len(group) == RUNS_PER_REQUEST_MAX or sum(map(len, group)) > NAME_CHARS_PER_REQUEST:
            yield group
            group = []
    if group:
        yield group
