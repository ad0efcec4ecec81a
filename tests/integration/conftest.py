"""Fixtures of integration tests: the API for an owner, an empty experiment, a series to write."""

from __future__ import annotations

import pytest

from support.batches import ApiClient
from support.maintenance import command_runner
from support.series_writer import SeriesWriter


@pytest.fixture
def api(client, owner_token):
    """The HTTP API of the test's own application, with an owner's token."""
    return ApiClient(client, owner_token)


@pytest.fixture
def experiment(api):
    """The id of an empty experiment."""
    return api.new_experiment()


@pytest.fixture
def writer(api, experiment, database, workspace_id):
    """Writes one scalar series of the experiment, and compacts it."""
    return SeriesWriter(api, experiment, database, workspace_id)


@pytest.fixture
def maintenance_command(monkeypatch, capsys):
    """Runs `tbservice check`, `backup` or `restore`: see `support.maintenance`."""
    return lambda settings=None: command_runner(monkeypatch, capsys, settings)
