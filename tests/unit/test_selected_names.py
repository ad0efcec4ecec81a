"""The names by which `Experiment` selects runs and tags."""

from __future__ import annotations

import pytest

import tbupload
from tbupload.errors import UsageError


@pytest.mark.parametrize(("run", "tag"), [(None, 5), (None, [5]), (b"train", None), ([None], "a")])
def test_what_is_no_name_is_refused_before_anything_is_read(run, tag):
    experiment = tbupload.Experiment("http://127.0.0.1:9/experiment/abc", token="t")
    with pytest.raises(UsageError, match="must be a name or a list of names, not"):
        experiment.scalars(run, tag)
