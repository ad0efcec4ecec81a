"""Check all that a service stores, while it runs: each experiment in a snapshot of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy import Connection

from tbservice.audit.log import check_chains
from tbservice.auth.tables import workspaces
from tbservice.db.cluster.reference_tables import CopyDigest, list_reference_tables, read_digests
from tbservice.db.database import Database
from tbservice.errors import NotFound
from tbservice.experiments.tables import experiment_size
from tbservice.integrity.findings import Damage, Findings
from tbservice.integrity.scalar_series import ScalarCheck
from tbservice.integrity.stored_objects import ObjectCheck
from tbservice.integrity.tables import integrity_scan
from tbservice.integrity.tables.integrity_scan import SeriesCounters
from tbservice.integrity.value_series import ValueCheck
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs, object_references
from tbservice.quotas.tables import usage_counters
from tbservice.series.tables import sample_slots
from tbservice.throttle import Progress, Throttle
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import Usage
from tbwire.points import DataClass

_SERIES_PER_PAGE: Final = 500

_LOOKS_MAX: Final = 5
"""Looks at a table whose copies differ: a commit arrives on its nodes one after the other."""
_PAUSE_SECONDS: Final = 0.5

_ADVICE = "`tbservice workspace quota {} --recount` counts again"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of a check.

    `after` leaves out the experiments up to this id, and `only` all others; both leave out objects.
    """

    after: str | None = None
    only: str | None = None
    reads_content: bool = False
    skips_objects: bool = False


class Check:
    """One check of a service. `findings` grows meanwhile, and is valid after an interruption."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        options: CheckOptions,
        throttle: Throttle,
        progress: Progress,
        on_damage: Callable[[Damage], None],
    ) -> None:
        """`on_damage` is called with each damage when it is found."""
        self.findings = Findings()
        self._database = database
        self._options = options
        self._throttle = throttle
        self._progress = progress
        self._on_damage = on_damage
        self._objects = ObjectCheck(
            database, objects, throttle, self.findings, reads_content=options.reads_content
        )

    def run(self) -> Findings:
        """Check everything.

        Raises NotFound if there is no such experiment, Unavailable when PostgreSQL or S3 is.
        """
        with self._database.snapshot() as db:
            workspace_ids = [workspace_id for workspace_id, _ in workspaces.list_all(db)]
        places = self._list_experiments(workspace_ids)
        if self._options.only is not None and not places:
            raise NotFound(f"there is no experiment {self._options.only}")
        if self._options.only is None:
            self._record(_compare_reference_tables(self._database))
            self._record(self._check_audit(workspace_ids))
        for number, (experiment_id, workspace_id) in enumerate(places, 1):
            self._record(self._check_experiment(workspace_id, experiment_id))
            self.findings.last_experiment_id = experiment_id
            self._progress.report(partial(self._describe, number, len(places)))
        if self._options.only is None:
            for workspace_id in workspace_ids:
                with self._database.snapshot(workspace_id) as db:
                    self._record(check_blob_bytes(db, workspace_id))
        if not self._options.skips_objects:
            for workspace_id in workspace_ids:
                self._record(self._objects.run(workspace_id, self._report_objects))
                self.findings.looked.workspaces += 1
        return self.findings

    def _check_audit(self, workspace_ids: list[WorkspaceId]) -> Iterator[Damage]:
        for workspace_id, broken in check_chains(self._database, workspace_ids):
            yield Damage("audit", broken, workspace_id)

    def _list_experiments(
        self, workspace_ids: list[WorkspaceId]
    ) -> list[tuple[ExperimentId, WorkspaceId]]:
        """Return the experiments to check, by id, so that a check can be continued after one."""
        places = []
        for workspace_id in workspace_ids:
            with self._database.snapshot(workspace_id) as db:
                places += [
                    (experiment.experiment_id, workspace_id)
                    for experiment in integrity_scan.list_experiments(db, workspace_id)
                    if not experiment.is_erased
                ]
        after, only = self._options.after, self._options.only
        return sorted(
            place for place in places if place[0] > (after or "") and only in {None, place[0]}
        )

    def _check_experiment(
        self, workspace_id: WorkspaceId, experiment_id: ExperimentId
    ) -> Iterator[Damage]:
        place = workspace_id, experiment_id
        looked, damaged_before = self.findings.looked, len(self.findings.damage)
        with self._database.snapshot(workspace_id) as db:
            if not integrity_scan.has_experiment(db, experiment_id):
                return  # erased since it was listed
            for what, count in integrity_scan.count_orphans(db, experiment_id).items():
                yield Damage("reference", f"{count} times {what}", *place)

            ranks = sample_slots.get_ranks(db)
            scalars = ScalarCheck(db, place, ranks, self._throttle, looked)
            values: list[SeriesCounters] = []
            after, is_last = -1, False
            while not is_last:
                page = integrity_scan.list_series(db, experiment_id, after, _SERIES_PER_PAGE)
                is_last = len(page) < _SERIES_PER_PAGE
                after = page[-1].series_id if page else after
                yield from scalars.run(
                    [series for series in page if series.data_class == DataClass.SCALAR]
                )
                others = [series for series in page if series.data_class != DataClass.SCALAR]
                values += others
                named = object_references.list_all_digests(
                    db, experiment_id, [series.series_id for series in others]
                )
                unknown = blobs.list_unknown(db, workspace_id, named)
                for sha256 in unknown:
                    yield Damage("reference", f"no blob has the SHA-256 {sha256.hex()}", *place)
            yield from ValueCheck(db, place, ranks, self._throttle, looked).run(values)
            if len(self.findings.damage) == damaged_before:  # else the points are to blame
                yield from check_usage(db, *place)
        looked.experiments += 1

    def _record(self, damage: Iterator[Damage]) -> None:
        for each in damage:
            self.findings.damage.append(each)
            self._on_damage(each)

    def _describe(self, number: int, count: int) -> str:
        looked = self.findings.looked
        return (
            f"{number} of {count} experiments, {looked.points:,} points, "
            f"{looked.database_bytes >> 20} MiB read, {len(self.findings.damage)} damaged; "
            f"the last one was {self.findings.last_experiment_id}"
        )

    def _report_objects(self) -> None:
        looked = self.findings.looked
        self._progress.report(
            lambda: f"{looked.blobs:,} blobs compared, {looked.blob_bytes >> 20} MiB"
        )


def _compare_reference_tables(database: Database) -> Iterator[Damage]:
    """Yield the tables whose copies differ at each look; nothing on plain PostgreSQL.

    Raises Unavailable if a node does not answer.
    """
    with database.transaction() as db:
        tables = list_reference_tables(db)
    for table in tables:
        differing: set[str] | None = None
        for look in range(_LOOKS_MAX):
            if look:
                time.sleep(_PAUSE_SECONDS)
            with database.transaction() as db:
                copies = read_digests(db, table)
            now = _list_differing_parts(copies)
            differing = now if differing is None else differing & now
            if not differing:
                break
        else:
            rows = ", ".join(f"{node} has {copy.rows:,} rows" for node, copy in copies.items())
            yield Damage("reference_table", f"the copies of {table} differ: {rows}", None)


def _list_differing_parts(copies: dict[str, CopyDigest]) -> set[str]:
    parts = {part for copy in copies.values() for part in copy.parts}
    return {part for part in parts if len({copy.parts.get(part) for copy in copies.values()}) > 1}


def check_usage(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId
) -> Iterator[Damage]:
    """Yield a wrong counter of an experiment; one that is missing is none, it is created later."""
    counted = usage_counters.find(db, experiment_id) if usage_counters.exist(db) else None
    if counted is None:
        return
    stored = experiment_size.measure_usage(db, experiment_id)
    wrong = [
        f"{name} {has:,} instead of {should:,}"
        for name, has, should in zip(Usage._fields, counted, stored, strict=True)
        if name != "blob_bytes" and has != should
    ]
    if wrong:
        detail = f"counted {', '.join(wrong)}: {_ADVICE.format(workspace_id)}"
        yield Damage("usage", detail, workspace_id, experiment_id)


def check_blob_bytes(db: Connection, workspace_id: WorkspaceId) -> Iterator[Damage]:
    """Yield the wrong number of bytes of a workspace's blobs."""
    if not usage_counters.exist(db):
        return
    wrong = usage_counters.find_uncounted_blob_bytes(db, workspace_id)
    is_counted = usage_counters.find(db, usage_counters.workspace_counter(workspace_id))
    if is_counted is not None and wrong:
        detail = f"{wrong:,} bytes of blobs are not counted: {_ADVICE.format(workspace_id)}"
        yield Damage("usage", detail, workspace_id)
