"""Large tensors end to end: texts and meshes of megabytes, in the row of a point and beyond it, read in every way."""

from __future__ import annotations

import numpy as np
import pytest

from support.event_files import plugin_event, tensor_proto, text_event, version_event, write_records

NAME = "events.out.tfevents.1.host"
RANDOM = np.random.default_rng(7)
MIB = 1 << 20

TEXT = "".join(chr(97 + code) for code in RANDOM.integers(0, 26, 5_000)) * 1_000
"""A text of 5 MB."""

MESH = RANDOM.random((1, 400_000, 3), np.float32)
"""The vertices of a mesh; torch writes them as `float_val`."""

IN_ROW = RANDOM.integers(0, 256, int(9.9 * MIB), np.uint8)


@pytest.fixture
def path(logdir):
    return logdir / "run" / NAME


def test_tensors_of_megabytes_read_back(uploader, reader, logdir, path):
    mesh = plugin_event("mesh", "mesh_VERTEX", 1, tensor_proto(MESH, "values"))
    other = plugin_event("other", "bytes", 1, tensor_proto(IN_ROW))
    write_records(path, [version_event(), text_event("text", 1, TEXT), mesh, other])
    ended = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert (ended.code, ended.done["skipped"]) == (0, {}), ended.err
    experiment = ended.experiment_id
    assert only(reader, experiment, "text")["data"] == [TEXT]
    assert np.array_equal(np.array(only(reader, experiment, "mesh_VERTEX")["data"], np.float32), MESH.ravel())
    assert np.array_equal(np.array(only(reader, experiment, "bytes")["data"], np.uint8), IN_ROW)
    verified = uploader.run("verify", "--logdir", logdir, "--experiment", experiment)
    assert verified.code == 0, verified.err


def only(reader, experiment_id, tag):
    """The one tensor of a series."""
    (value,) = reader.get(experiment_id, "tensors/data", tag=tag)["run"][tag]["values"]
    return value
