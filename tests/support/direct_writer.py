"""Scalar points written without HTTP, to an experiment of a new workspace."""

from __future__ import annotations

from tbservice.auth.workspaces import create_workspace
from tbservice.experiments.lifecycle import create_experiment
from tbservice.ingest.batch import Segment, SentMetadata, SentSeries
from tbservice.ingest.commit import write_batch
from tbservice.types.grants import AppendGrant, WorkspaceGrant
from tbservice.types.series import Stream
from tbwire.points import DataClass

METADATA = SentMetadata("scalars", DataClass.SCALAR, b"")


def new_grant(database):
    """Create a workspace with an experiment; return the grant to append to it."""
    with database.transaction() as db:
        workspace_id = create_workspace(db, "of one series")
    with database.transaction(workspace_id) as db:
        experiment = create_experiment(db, WorkspaceGrant(workspace_id))
    return AppendGrant(workspace_id, experiment.experiment_id)


def write_points(writer, grant, points, start, end, *, run="run", file_name="f", tags=("tag",)):
    """Write one segment of a file, from a cursor to another, with the same points for each tag."""
    stream = Stream(run, file_name, bytes(32), 0, bytes(32))
    series = [SentSeries(tag, METADATA, points) for tag in tags]
    write_batch(writer, grant, [Segment(0, stream, start, end, start, end, series, {}, 0.0)])
