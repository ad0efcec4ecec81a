"""What most of these tests begin with: the API for an owner, an experiment without anything, a
series to write.
"""

from __future__ import annotations

import pytest

from support.batches import ApiClient
from support.series_writer import SeriesWriter


@pytest.fixture
def api(client, owner_token):
    """The HTTP API of the test's own application, with an owner's token."""
    return ApiClient(client, owner_token)


@pytest.fixture
def experiment(api):
    """The id of an experiment that holds nothing yet."""
    return api.new_experiment()


@pytest.fixture
def writer(api, experiment, database, workspace_id):
    """Writes one scalar series of the experiment, and merges it."""
    return SeriesWriter(api, experiment, database, workspace_id)
