"""Fixtures of integration tests: the API for an owner, an empty experiment, a series to write."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from support.batches import ApiClient
from support.katib import KatibClient
from support.maintenance import command_runner
from support.page_forms import new_reader
from support.people import new_member
from support.series_writer import SeriesWriter
from support.servers import environment_of, new_owner
from tbservice.cli import main
from tbservice.types.grants import KatibGrant
from tbservice.types.people import Role


@pytest.fixture(scope="session", autouse=True)
def _erasing_by_tests_alone():
    """A service looks once a minute for what is to be erased; a test's own look, at that moment,
    would find it busy, and do nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tbservice.experiments.eraser.ERASE_INTERVAL_SECONDS", 3600.0)
        yield


@pytest.fixture
def api(client, owner_token):
    """The HTTP API of the test's own application, with an owner's token."""
    return ApiClient(client, owner_token)


@pytest.fixture(scope="module")
def shared_api(shared_application, shared_settings):
    """The API for the owner of one workspace: for what all tests of a module read."""
    owner = new_owner(shared_settings.database_url.get_secret_value())
    return ApiClient(shared_application, owner)


@pytest.fixture
def experiment(api):
    """The id of an empty experiment."""
    return api.new_experiment()


@pytest.fixture
def browser(client, database, workspace_id):
    """The browser of an owner of the workspace."""
    return new_reader(client, database, new_member(database, workspace_id))


@pytest.fixture
def editor(client, database, workspace_id):
    """The browser of an editor."""
    return new_reader(client, database, new_member(database, workspace_id, Role.EDITOR))


@pytest.fixture
def viewer(client, database, workspace_id):
    """The browser of a viewer."""
    return new_reader(client, database, new_member(database, workspace_id, Role.VIEWER))


@pytest.fixture
def katib(client, workspace_id):
    """Katib's calls, of the whole workspace."""
    grant = KatibGrant(workspace_id, None, may_read=True, may_delete=True)
    return KatibClient(client.app.state.ingest, grant)


@pytest.fixture
def writer(api, experiment, database, workspace_id):
    """Writes one scalar series of the experiment, and compacts it."""
    return SeriesWriter(api, experiment, database, workspace_id)


@pytest.fixture
def count_waiting(servers, database_url):
    """Counts the statements that wait for a lock in the test's database."""
    return lambda: servers.count_waiting(database_url)


@pytest.fixture
def owner_url(servers, database_url):
    """The URL of the test's database for the role that migrates it."""
    return servers.owner_url(database_url)


@pytest.fixture
def rename_table(owner_url):
    """Renames a table, so that statements on it fail."""

    def rename_table(name, new_name):
        with psycopg.connect(owner_url) as db:
            db.execute(
                SQL("ALTER TABLE {} RENAME TO {}").format(*map(Identifier, (name, new_name)))
            )

    return rename_table


@pytest.fixture
def run_tbservice(settings, monkeypatch, capsys):
    """Runs `tbservice` on the test's database: exit code, lines of stdout, stderr."""
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


@pytest.fixture
def maintenance_command(monkeypatch, capsys):
    """Runs `tbservice check`, `backup` or `restore`: see `support.maintenance`."""
    return lambda settings=None: command_runner(monkeypatch, capsys, settings)
