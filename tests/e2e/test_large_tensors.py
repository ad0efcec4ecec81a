"""Large tensors end to end: in the row of a point or as objects, read, exported, verified and
resumed.
"""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from support.event_files import version_event, write_records
from support.lazy import LazyModule

NAME = "events.out.tfevents.1.host"
tensors = LazyModule("support.large_tensors")


@pytest.fixture
def path(logdir):
    return logdir / "run" / NAME


def upload(uploader, logdir, *more):
    """Upload everything; nothing must be skipped."""
    ended = uploader.run_process("--logdir", logdir, "--one-shot", "--json", *more)
    assert (ended.code, ended.done["skipped"]) == (0, {}), ended.err
    return ended.experiment_id


def digests(reader, experiment):
    """Return {tag: digest} of an experiment of few series."""
    return {
        series["tag"]: series["sha256"] for series in reader.get(experiment, "digests")["series"]
    }


def data(reader, experiment, tag):
    """Return the elements of the one tensor of a series."""
    (value,) = reader.get(experiment, "tensors/data", tag=tag)["run"][tag]["values"]
    return value["data"]


def test_large_tensors_read_back_verify_and_export(uploader, reader, logdir, path, tmp_path):
    write_records(path, [version_event(), *tensors.EVENTS.values()])
    experiment = upload(uploader, logdir)
    assert data(reader, experiment, "long text") == [tensors.LONG_TEXT]
    assert np.array_equal(np.array(data(reader, experiment, "in row"), np.uint32), tensors.IN_ROW)
    assert_parquet(reader, experiment)
    page = f"/experiment/{experiment}/data/plugin/text/text?run=run&tag=long%20text&markdown=false"
    assert len(reader.http.get(page).content) > len(tensors.LONG_TEXT)

    verified = uploader.run_process("verify", "--logdir", logdir, "--experiment", experiment)
    assert verified.code == 0, verified.err

    exported = tmp_path / "exported"
    ended = uploader.run_process(
        "export", "--experiment", experiment, "--format", "events", "--output", exported
    )
    assert ended.code == 0, ended.err
    again = upload(uploader, exported, "--new")
    assert digests(reader, again) == digests(reader, experiment)
    assert set(digests(reader, again)) == set(tensors.EVENTS)


def assert_parquet(reader, experiment):
    """Check that all points as Parquet equal those that were written."""
    answer = reader.http.get(
        f"/api/v1/experiments/{experiment}/tensors/data",
        params={"sampling": "all", "format": "parquet"},
    )
    rows = {row["tag"]: row for row in pq.read_table(io.BytesIO(answer.content)).to_pylist()}
    for tag, array in (("large mesh", tensors.LARGE_MESH), ("in row", tensors.IN_ROW)):
        assert rows[tag]["shape"] == list(array.shape)
        assert rows[tag]["data"] == array.tobytes()
    assert rows["strings"]["strings"] == tensors.STRINGS
