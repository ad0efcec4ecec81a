"""`tbupload.follow` with the writers of the frameworks: however the training ends, and whenever they
are closed, all that is in the files is stored.
"""

from __future__ import annotations

import pytest

from support.frameworks import python_of
from support.training_ends import check_end, installed
from support.training_script import ENDS, WRITERS

ENVIRONMENTS = {
    "torch": "torch",
    "tensorboardX": "torch",
    "tensorflow": "tensorflow",
    "clu": "tensorflow",
}
"""The environment that has each writer. That of TensorBoard alone is tried by `make test`."""


def test_every_writer_is_installed():
    assert ENVIRONMENTS.keys() == WRITERS.keys() - {"tensorboard"}
    for writer, environment in ENVIRONMENTS.items():
        assert writer in installed(python_of(environment))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("writer", ENVIRONMENTS)
def test_follow_of_framework_uploads_all_files(uploader, reader, tmp_path, writer, end):
    check_end(uploader, reader, tmp_path, python_of(ENVIRONMENTS[writer]), writer, end)
