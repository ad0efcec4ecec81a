"""Results of a verification, per series and in total, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tbupload.console.texts import PROBLEMS_SHOWN, counted, runs_text, size_text
from tbupload.upload.skipped_files import skipped_lines
from tbupload.upload.summary import empty_values_lines
from tbupload.verify.lost_objects import LostObjects
from tbupload.verify.step_order import Differences, StepSample


class Status(str, Enum):
    """How a stored series compares with the files; the values are those of `--json`.

    `EXTRA`: all points of the files are stored, and further ones. `DAMAGED`: the points match, but
    the bytes of some blobs are lost.
    """

    MATCHING = "proven"
    MISSING = "missing"
    DIFFERENT = "different"
    EXTRA = "extra"
    DAMAGED = "damaged"

    @property
    def label(self) -> str:
        """Return the word for people; "proven" is only kept as a key of the JSON output."""
        return "matching" if self is Status.MATCHING else self.value


@dataclass(frozen=True)
class Finding:
    """Result for one series; `points` is of the files, `reasons` are differences besides points.

    `is_superseded`: it is the start or end of a session, and the experiment has a later one.
    """

    run: str
    tag: str
    plugin: str
    data_class: str
    status: Status
    points: int
    stored_points: int
    differences: Differences | None = None
    reasons: tuple[str, ...] = ()
    lost_objects: LostObjects | None = None
    is_superseded: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields, with counts and first steps of the differences in points."""
        fields: dict[str, Any] = {
            "run": self.run,
            "tag": self.tag,
            "plugin": self.plugin,
            "data_class": self.data_class,
            "status": self.status.value,
            "points": self.points,
            "stored_points": self.stored_points,
            "reasons": list(self.reasons),
        }
        if self.differences is not None:
            for name, steps in _kinds(self.differences):
                fields[name] = steps.count
                fields[f"first_{name}_steps"] = steps.first
        if self.lost_objects is not None:
            fields["lost_objects"] = self.lost_objects.as_json()
        return fields

    def line(self) -> str:
        """Return one line for people."""
        name = f"{self.run}  {self.tag}  ({self.plugin or 'no plugin'})"
        return f"{self.status.label:<9}  {name}: {self._explanation()}"

    def _explanation(self) -> str:
        sentences = list(self.reasons)
        if self.differences is not None:
            sentences += [
                _steps_text(name, steps) for name, steps in _kinds(self.differences) if steps.count
            ]
        if self.lost_objects is not None:
            sentences += self.lost_objects.sentences()
        return "; ".join(sentences) or counted(self.points, "point")


def _kinds(differences: Differences) -> Iterator[tuple[str, StepSample]]:
    yield "missing", differences.missing
    yield "different", differences.different
    yield "extra", differences.extra


def _steps_text(name: str, steps: StepSample) -> str:
    label = "step" if steps.count == 1 else "steps"
    more = ", …" if steps.count > len(steps.first) else ""
    return (
        f"{counted(steps.count, 'point')} {name} ({label} {', '.join(map(str, steps.first))}{more})"
    )


def _join_names(runs: list[str]) -> str:
    more = ", …" if len(runs) > PROBLEMS_SHOWN else ""
    return f"{len(runs):,} ({', '.join(runs[:PROBLEMS_SHOWN])}{more})"


@dataclass
class VerifyResult:
    """Result of a verification.

    Attributes:
        experiment_id: the experiment.
        is_strict: data that is only in the experiment is an error. By default it is only
            reported, since files may have been rotated or deleted.
        runs: runs of the files.
        points: points of the files, one per step.
        bytes: bytes of event files.
        statuses: number of series by status.
        extra_runs: runs of the experiment that are not in the log directory.
        deleted_runs: runs of the files that were deleted on the server.
        system_runs: others that are not: the system metrics of an upload, which are in no file.
        embeddings: series of the Embedding Projector, which are compared without wall time.
        empty_values: values without content in the files, which are not stored.
        set_sessions: starts and ends of sessions that are in none of the files, or that have what
            none of them has: `--hparams` or the API set it, or a file that was deleted had it.
        superseded: points of the files replaced by others of the same run, tag and step.
        objects: objects checked in the object store, each counted once per group of runs.
        object_bytes: total size of these objects.
        is_deep: the server read the bytes of the objects, not only their sizes.
        lost_objects: SHA-256 digests (hexadecimal) of lost objects, by run.
        skipped: values that cannot be uploaded, by reason.
        skipped_files: skipped values of known files, by path.
        problems: sentences on files and paths that cannot be read.
        notes: further sentences for people.
    """

    experiment_id: str
    is_strict: bool
    runs: int = 0
    points: int = 0
    bytes: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    extra_runs: list[str] = field(default_factory=list)
    deleted_runs: list[str] = field(default_factory=list)
    system_runs: list[str] = field(default_factory=list)
    embeddings: int = 0
    empty_values: int = 0
    set_sessions: int = 0
    superseded: int = 0
    objects: int = 0
    object_bytes: int = 0
    is_deep: bool = False
    lost_objects: dict[str, set[str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_files: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_matching(self) -> bool:
        """Return whether the experiment has all data of the files, and all can be uploaded."""
        mismatches = sum(
            self.statuses[status] for status in (Status.MISSING, Status.DIFFERENT, Status.DAMAGED)
        )
        return (
            not mismatches
            and not self.skipped
            and not self.problems
            and not (self.is_strict and self._has_extra)
        )

    @property
    def lost_count(self) -> int:
        """Return the number of lost objects, each counted once."""
        return len(set().union(*self.lost_objects.values()))

    @property
    def _has_extra(self) -> bool:
        return bool(self.extra_runs or self.statuses[Status.EXTRA])

    def as_json(self) -> dict[str, Any]:
        """Return the fields; `series` has the number of series by status."""
        return {
            "proven": self.is_matching,
            "experiment_id": self.experiment_id,
            "runs": self.runs,
            "points": self.points,
            "bytes": self.bytes,
            "series": {status.value: self.statuses[status] for status in Status},
            "extra_runs": self.extra_runs,
            "deleted_runs": self.deleted_runs,
            "system_runs": self.system_runs,
            "embeddings": self.embeddings,
            "empty_values": self.empty_values,
            "set_sessions": self.set_sessions,
            "superseded": self.superseded,
            "objects": {
                "checked": self.objects,
                "bytes": self.object_bytes,
                "lost": self.lost_count,
            },
            "skipped": dict(sorted(self.skipped.items())),
            "skipped_files": self.skipped_files,
            "problems": self.problems,
            "notes": self.notes,
        }

    def lines(self) -> Iterator[str]:
        """Yield sentences for people."""
        series = sum(self.statuses.values())
        scope = (
            f"{counted(self.points, 'point')} of {counted(self.runs, 'run')} "
            f"({size_text(self.bytes)} of event files)"
        )
        if self.is_matching:
            yield f"matches: experiment {self.experiment_id} has all points of the files: {scope}"
        else:
            yield f"DOES NOT MATCH: experiment {self.experiment_id} and the files differ: {scope}"

        counts = ", ".join(
            f"{self.statuses[status]:,} {status.label}"
            for status in Status
            if self.statuses[status]
        )
        yield f"{series:,} series: {counts or 'none'}"

        if self.embeddings:
            yield f"projector embeddings, compared without wall time: {self.embeddings:,}"
        if self.set_sessions:
            yield f"series of hyperparameters set without files: {self.set_sessions:,}"
        if self.system_runs:
            names = _join_names(self.system_runs)
            yield f"runs of system metrics, which are in no file: {names}"
        if self.superseded:
            yield f"  and {counted(self.superseded, 'superseded point')}: a step keeps one point"
        yield from empty_values_lines(self.empty_values)
        if self.objects:
            how = "" if self.is_deep else " for existence and size (--deep reads their bytes)"
            size = size_text(self.object_bytes)
            yield f"objects checked{how}: {self.objects:,} ({size}), lost: {self.lost_count:,}"

        if self.deleted_runs:
            yield (
                f"deleted on the server, so that all of it is missing: "
                f"{runs_text(self.deleted_runs)} (tbupload --upload-deleted-runs uploads again, "
                "--exclude-runs leaves out here)"
            )
        yield from self.notes[:PROBLEMS_SHOWN]
        yield from skipped_lines("cannot be uploaded:", self.skipped, self.skipped_files)
        yield from (f"  {problem}" for problem in self.problems[:PROBLEMS_SHOWN])
        if self._has_extra:
            yield from self._extra_lines()

    def _extra_lines(self) -> Iterator[str]:
        if self.extra_runs:
            yield f"runs that are not in the logdir: {_join_names(self.extra_runs)}"
        yield (
            "the experiment contains more than these files: points of files that were deleted, "
            "rotated or truncated since, or uploaded from elsewhere"
            + (", which is an error with --strict" if self.is_strict else "")
        )
