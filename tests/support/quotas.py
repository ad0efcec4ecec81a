"""Set quotas, and compare what is counted with the tables."""

from __future__ import annotations

from contextlib import nullcontext

from sqlalchemy import text

from support.batches import batch, scalars, segment, stream
from support.people import new_person
from tbservice.auth import people
from tbservice.errors import QuotaExceeded
from tbservice.experiments.tables import experiment_size
from tbservice.quotas import plans
from tbservice.quotas.tables import usage_counters
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.people import Role
from tbservice.types.quotas import QUOTA_NAMES


def admit_member(database, workspace_id):
    """Make a new person a member, as administrators do. Raises QuotaExceeded."""
    user_id = new_person(database).user_id
    with database.transaction() as db:
        people.add_member(db, workspace_id, user_id, Role.VIEWER)


def set_quota(database, holder, **limits):
    """Set the limits of a workspace or account, as an administrator does; the others are none."""
    with database.transaction(holder if isinstance(holder, int) else None) as db:
        plans.set_quota(db, holder, None, dict.fromkeys(QUOTA_NAMES) | limits)


def upload_until_refused(ingest, workspace_id, experiment, points):
    """Send batches of so many points into an experiment; return how many were stored."""
    grant, number = AppendGrant(workspace_id, experiment), 0
    while True:
        steps = range(number * points, (number + 1) * points)
        content = batch(segment(stream(), number, number + 1, scalars("loss", steps)))
        try:
            ingest.accept(grant, content, lambda _: nullcontext())
        except QuotaExceeded:
            return number
        number += 1


def stored_usage(database, workspace_id):
    """Return what the counters of a workspace say together."""
    with database.transaction(workspace_id) as db:
        return usage_counters.sum_all(db, workspace_id)


def assert_counted(database, workspace_id):
    """Compare each counter with the points of its experiment, and all of them with the blobs."""
    with database.snapshot(workspace_id) as db:
        db.execute(text("SELECT set_config('tbhub.shows_deleted', 'on', true)"))
        counters = db.execute(text("SELECT * FROM usage_counters")).all()
        blobs = db.execute(text("SELECT coalesce(sum(size), 0) FROM blobs")).scalar_one()
        assert sum(counter.blob_bytes for counter in counters) == blobs
        of_experiments = {each.experiment_id: each for each in counters}
        of_experiments.pop(usage_counters.workspace_counter(workspace_id), None)
        for experiment_id, counter in of_experiments.items():
            stored = experiment_size.measure_usage(db, ExperimentId(experiment_id))
            counted = (
                counter.scalars,
                counter.tensors,
                counter.blob_sequences,
                counter.tensor_bytes,
            )
            assert counted == stored[:4], experiment_id
