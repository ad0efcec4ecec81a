"""Check that counters of usage are what a recount of the tables gives."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from tbservice.experiments.tables import experiment_size
from tbservice.integrity.findings import Damage
from tbservice.quotas.tables import usage_counters
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import Usage

_ADVICE = "`tbservice workspace quota {} --recount` counts again"


def check_experiment(
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


def check_blobs(db: Connection, workspace_id: WorkspaceId) -> Iterator[Damage]:
    """Yield the wrong number of bytes of a workspace's blobs."""
    if not usage_counters.exist(db):
        return
    wrong = usage_counters.find_uncounted_blob_bytes(db, workspace_id)
    is_counted = usage_counters.find(db, usage_counters.workspace_counter(workspace_id))
    if is_counted is not None and wrong:
        detail = f"{wrong:,} bytes of blobs are not counted: {_ADVICE.format(workspace_id)}"
        yield Damage("usage", detail, workspace_id)
