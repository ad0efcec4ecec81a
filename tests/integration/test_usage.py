"""Usage is exact: after random writes, replacements, deletions, copies and compactions, it is what
the tables have.
"""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from support.batches import ApiClient, images, scalars, texts
from support.katib import KatibClient, log
from support.quotas import assert_counted, stored_usage
from support.restarted_job import Job
from support.share_links import make_link
from tbservice.experiments import eraser
from tbservice.integrity.tables import unused_blobs
from tbservice.types.grants import KatibGrant

EXAMPLES = 6
FILES, WIDTH = 3, 64

pytestmark = pytest.mark.own_database

OPERATIONS = st.one_of(
    st.tuples(
        st.just("write"),
        st.integers(0, FILES - 1),
        st.lists(st.integers(0, 6), min_size=1, max_size=5),
        st.integers(0, 3),
    ),
    st.tuples(st.sampled_from(["compact", "freeze", "delete run", "delete series", "report"])),
    st.tuples(st.sampled_from(["unreport", "delete", "restore", "delete for good", "sweep"])),
)


class Workspace:
    """One experiment with a run that restarts, its copies, and earlier ones that were deleted."""

    def __init__(self, client, owner_token, database, workspace_id):
        self.client, self.api = client, ApiClient(client, owner_token)
        self.database, self.workspace_id = database, workspace_id
        self.deleted, self.clock = None, 0
        self.begin()

    def begin(self):
        self.experiment = self.api.new_experiment()
        self.job = Job(self.api, self.experiment, self.database, self.workspace_id)
        grant = KatibGrant(self.workspace_id, None, may_read=True, may_delete=True)
        self.katib = KatibClient(self.client.app.state.ingest, grant)

    def do(self, name, *arguments):
        """Do one operation; one that makes no sense now does nothing."""
        getattr(self, name.replace(" ", "_"))(*arguments)

    def write(self, file, steps, size):
        """Write steps that may replace others, of this attempt or an earlier one."""
        self.clock += 1
        times = [1000.0 * file + self.clock + place / 10 for place in range(len(steps))]
        values = [f"{self.clock} {step}".encode() * size for step in steps]
        self.job.write(
            f"events.{file}",
            1000.0 * file + 1,
            # Enough to be compacted.
            scalars(
                "loss",
                [step * WIDTH + number for step in steps for number in range(WIDTH)],
                [time for time in times for _ in range(WIDTH)],
                [time for time in times for _ in range(WIDTH)],
            ),
            texts("note", steps, values, times),
            images("image", steps, [[value or b"x"] for value in values], times),
        )

    def compact(self):
        if self.job.offsets:
            self.job.compact()

    def freeze(self):
        make_link(self.api, self.experiment, frozen=True)

    def delete_run(self):
        self._delete_of("runs", run="train")

    def delete_series(self):
        self._delete_of("series", run="train", tag="note")

    def _delete_of(self, what, **selected):
        path = f"/experiments/{self.experiment}/{what}"
        answer = self.api.request("DELETE", path, params=selected)
        assert answer.status_code in (204, 404), answer.text
        self.job.offsets.clear()
        if what == "runs":  # nothing may write the run again
            self.begin()

    def report(self):
        self.clock += 1
        self.katib.report("trial", log("loss", self.clock), log("accuracy", 0.5))

    def unreport(self):
        self.katib.delete("trial")

    def delete(self, **query):
        path = f"/experiments/{self.experiment}"
        self.api.request("DELETE", path, params=query).raise_for_status()
        self.deleted = None if query else self.experiment
        self.begin()

    def delete_for_good(self):
        before = stored_usage(self.database, self.workspace_id).points
        self.delete(final="true")
        assert stored_usage(self.database, self.workspace_id).points <= before
        eraser.erase_due(self.database, threading.Event())

    def restore(self):
        if self.deleted is not None:
            path = f"/experiments/{self.deleted}/restore"
            self.api.request("POST", path).raise_for_status()
            self.deleted = None

    def sweep(self):
        with self.database.transaction(self.workspace_id) as db:
            digests = [
                bytes(each) for each in db.execute(text("SELECT sha256 FROM blobs")).scalars()
            ]
            unused_blobs.condemn(db, self.workspace_id, digests[:1], mark=1)
            unused_blobs.delete_condemned(db, self.workspace_id, digests[:1], mark=1)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(operations=[("write", 0, [1, 2, 3], 1)] * 2 + [("write", 1, [2], 1), ("compact",)] * 2)
@given(operations=st.lists(OPERATIONS, min_size=4, max_size=16))
def test_usage_is_a_recount_after_random_operations(
    client, owner_token, database, workspace_id, operations
):
    workspace = Workspace(client, owner_token, database, workspace_id)
    for operation in operations:
        workspace.do(*operation)
        assert_counted(database, workspace_id)
