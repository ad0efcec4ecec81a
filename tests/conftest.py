"""Fixtures: one PostgreSQL and one SeaweedFS a session, a database and a bucket of its own for each
test.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

from support import servers as support
from tbservice.local.embedded.instance import Instance
from tbservice.local.embedded.ports import choose_ports

QUICK = ("tidy", "unit")
"""Folders whose modules take seconds."""

# A busy machine is no fault of the code: no example has a time limit.
hypothesis.settings.register_profile("tbhub", deadline=None)
hypothesis.settings.load_profile("tbhub")


def pytest_collection_modifyitems(items):
    """Order the modules for `--dist loadfile --no-loadscope-reorder`: of each folder in turn, the
    quick ones last.

    At the end no process is left alone with a long module, and modules that load the machine in the
    same way, as Chromium does, do not run side by side. By itself xdist would leave the modules of
    few tests, often long, for last.
    """
    counts: Counter[str] = Counter()
    places = {}
    for item in items:
        if item.path not in places:
            folder = item.path.parent.name
            places[item.path] = (folder in QUICK, counts[folder], folder)
            counts[folder] += 1
    items.sort(key=lambda item: places[item.path])


@pytest.fixture(scope="session")
def servers():
    """Both servers; a wheel that is missing is a failure that says what to install."""
    with (
        tempfile.TemporaryDirectory(prefix="tbhub-tests-") as directory,
        Instance(Path(directory, "data")) as instance,
    ):
        yield support.Servers(instance)


@pytest.fixture
def database_url(servers):
    """The URL of this test's own migrated database; commits are real."""
    with servers.database() as url:
        yield url


@pytest.fixture
def empty_database_url(servers):
    """The URL of this test's own database without any table."""
    with servers.database(migrated=False) as url:
        yield url


@pytest.fixture
def settings(servers, database_url):
    """Settings with this test's own database and bucket."""
    with servers.settings(database_url) as settings:
        yield settings


@pytest.fixture
def database(settings):
    """The store's database over this test's settings."""
    from tbservice.store.pg.database import Database  # noqa: PLC0415 - unit tests do without the server's packages

    database = Database(settings.database_url.get_secret_value(), settings.database_pool_size)
    yield database
    database.close()


@pytest.fixture
def owner_token(database_url):
    """The secret of an owner token of a new workspace in this test's database."""
    return support.new_owner(database_url)


@pytest.fixture
def client(settings):
    """An HTTP client of the whole application, in this process, with its start-up done."""
    from starlette.testclient import TestClient  # noqa: PLC0415 - unit tests do without the server's packages

    from tbservice.server.app import create_app  # noqa: PLC0415 - the same

    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture(scope="module")
def shared_settings(servers):
    """Settings with a database and a bucket that are shared by the tests of a module."""
    with servers.database() as url, servers.settings(url) as settings:
        yield settings


@pytest.fixture(scope="module")
def shared_application(shared_settings):
    """A client of an application that is shared by the tests of a module: it starts once, and keeps
    its cookies.
    """
    from starlette.testclient import TestClient  # noqa: PLC0415 - unit tests do without the server's packages

    from tbservice.server.app import create_app  # noqa: PLC0415 - the same

    with TestClient(create_app(shared_settings)) as client:
        yield client


@pytest.fixture(scope="session")
def live_service(servers, tmp_path_factory):
    """A running `tbservice serve`; `live_service.new_owner()` makes a workspace of one's own."""
    port = choose_ports(["service"], {})["service"]
    log = tmp_path_factory.mktemp("service") / "service.log"
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        support.live_service(settings, port, log) as live,
    ):
        yield live
