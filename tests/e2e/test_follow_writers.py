"""`tbupload.follow` with real writers: whatever ends the training, all that is in the files arrives.

Some of the ends of the writers that the tests install are always tried. TBHUB_TRAINING_PYTHON names
an interpreter to train with, for example one that has an old PyTorch or TensorFlow: then, all ends
of all its writers are tried. With those of `make test-frameworks`, its own tests do that.
"""

import os
import sys

import pytest

from support.training_ends import check_end, installed
from support.training_script import ENDS, TWICE

OTHER_PYTHON = os.environ.get("TBHUB_TRAINING_PYTHON")
PYTHON = OTHER_PYTHON or sys.executable

ALWAYS = {
    "tensorboard": (TWICE,),
    "tensorboardX": ("return",),
}
"""Writers that the tests install, and ends that are always tried: those that differ in what of
Python still runs.
"""


def test_writers_of_these_tests_are_installed():
    missing = set(ALWAYS) - set(installed(PYTHON))
    assert not missing or OTHER_PYTHON


def cases():
    """Return the writers and ends to try."""
    if OTHER_PYTHON:
        return [(writer, end) for writer in sorted(installed(PYTHON)) for end in ENDS]
    return [(writer, end) for writer, ends in ALWAYS.items() for end in ends]


@pytest.mark.parametrize(("writer", "end"), cases())
def test_follow_uploads_all_files_however_training_ends(uploader, reader, tmp_path, writer, end):
    check_end(uploader, reader, tmp_path, PYTHON, writer, end)
