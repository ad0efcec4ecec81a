"""Fixtures: one PostgreSQL and one SeaweedFS per process, one database, bucket and application per
module, and one workspace per test.

A test that looks at more than its own workspace, or that changes what others need, is marked
`own_database`: it has all of these to itself.
"""

from __future__ import annotations

import gc
import os
import signal
import stat
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from tempfile import gettempdir

import hypothesis
import pytest
from httpx2._config import DEFAULT_TIMEOUT_CONFIG

from support import programs
from support import servers as support
from support.fixture_retries import pytest_fixture_setup  # noqa: F401 - a hook
from support.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - a hook
from support.waiting import SECONDS_MAX

QUICK = ("tidy", "unit")
"""Folders whose modules take seconds."""

GC_THRESHOLDS = (5_000, 20, 100)
"""Ten times rarer than by default: tests make many objects, and few cycles."""

# A busy machine is no fault of the code: no example has a time limit.
every_run_differs = hypothesis.settings.get_profile("default")  # also where the variable CI is set
hypothesis.settings.register_profile("tbhub", every_run_differs, deadline=None)
hypothesis.settings.load_profile("tbhub")

# The clients of httpx2 wait five seconds for an answer by default: too few on a busy machine.
for each in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, each, SECONDS_MAX)


@pytest.fixture(scope="session", autouse=True)
def open_directories(tmp_path_factory):
    """Let other accounts enter pytest's directories: PostgreSQL does not run as root."""
    base = tmp_path_factory.getbasetemp()
    for directory in (base, *base.parents):
        status = directory.stat()
        if status.st_uid == os.getuid() and directory.is_relative_to(gettempdir()):
            directory.chmod(status.st_mode | stat.S_IXOTH)


@pytest.fixture
def tmp_path(tmp_path):
    """A directory of the test's own, which other accounts may enter."""
    tmp_path.chmod(tmp_path.stat().st_mode | stat.S_IXOTH)
    return tmp_path


def pytest_addoption(parser):
    parser.addoption(
        "--citus", action="store_true", help="databases are on a Citus cluster; needs CITUS_TOOLS"
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "own_database: a database, a bucket and an application for this test alone"
    )
    config.addinivalue_line("markers", "plain(reason): makes no sense on a cluster (--citus)")
    config.addinivalue_line("markers", "cluster: runs on a cluster only (--citus)")
    config.addinivalue_line("markers", "cluster_smoke: starts a cluster itself, with CITUS_TOOLS")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In the background of a script, where programs that tests start would ignore it, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until `pytest_collection_finish`: a third of collection would be spent on it


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Begin each folder at another module in each process of xdist.

    pytest rewrites the asserts of a module that it imports for the first time, and keeps the
    result. In a new clone all processes would rewrite all modules, one after the other, side by
    side.
    """
    report = yield
    number, count = worker_number(collector.config)
    if isinstance(collector, pytest.Dir) and report.result:
        first = len(report.result) * number // count
        report.result = report.result[first:] + report.result[:first]
    return report


def worker_number(config):
    """Return the number of this process of xdist, from 0, and the number of all of them."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return 0, 1
    return int(worker["workerid"].removeprefix("gw")), worker["workercount"]


def is_wanted(item):
    """Return whether a test makes sense on the database of this run."""
    on_cluster = item.config.getoption("citus")
    if item.get_closest_marker("cluster_smoke"):
        return not on_cluster and bool(os.environ.get("CITUS_TOOLS"))
    if item.get_closest_marker("cluster"):
        return on_cluster
    return not (on_cluster and item.get_closest_marker("plain"))


def pytest_collection_modifyitems(config, items):
    """Leave out what is for another database, and order the modules for `--dist loadfile --no-loadscope-reorder`: of each folder in turn, the
    quick ones last.

    At the end no process is left alone with a long module, and modules that load the machine in the
    same way, as Chromium does, do not run side by side. By itself xdist would leave the modules of
    few tests, often long, for last.
    """
    unwanted = [item for item in items if not is_wanted(item)]
    config.hook.pytest_deselected(items=unwanted)
    items[:] = [item for item in items if item not in unwanted]

    items.sort(key=lambda item: item.path)  # as every process has them
    counts: Counter[str] = Counter()
    places = {}
    for item in items:
        if item.path not in places:
            folder = item.path.parent.name
            places[item.path] = (folder in QUICK, counts[folder], folder)
            counts[folder] += 1
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish():
    """Leave what collection made out of garbage collection: millions of objects that stay, in which
    each full search for cycles would look again.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GC_THRESHOLDS)


def pytest_terminal_summary(terminalreporter):
    """Say which tests a missing program has cost, and how to install it."""
    for line in programs.describe_skipped(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def anyio_backend():
    """Run coroutine tests by asyncio, in modules that are marked `anyio`."""
    return "asyncio"


@pytest.fixture(scope="session")
def servers(request):
    """PostgreSQL, or with `--citus` a cluster, and SeaweedFS."""
    if request.config.getoption("citus"):
        from support import citus  # noqa: PLC0415 - few runs have a cluster

        assert citus.TOOLS, "CITUS_TOOLS must name the folder with cluster.sh"
        running = citus.cluster_servers(worker_number(request.config)[0])
    else:
        running = support.embedded_servers()
    with running as servers:
        yield servers


@pytest.fixture(scope="session")
def own_servers(request):
    """Starts servers for a module or a test alone, which may kill them: `own_servers() as servers`."""
    if not request.config.getoption("citus"):
        return support.embedded_servers
    from support import citus  # noqa: PLC0415 - few runs have a cluster

    return partial(citus.cluster_servers, worker_number(request.config)[0], is_second=True)


@pytest.fixture(scope="module")
def shared_settings(servers):
    """Settings with the database and the bucket that the tests of a module share."""
    with servers.database() as url, servers.settings(url) as settings:
        yield settings


@pytest.fixture(scope="module")
def shared_application(shared_settings):
    """A client of the application that the tests of a module share; it keeps its cookies."""
    with application(shared_settings) as client:
        yield client


@contextmanager
def application(settings):
    """An HTTP client of the complete application, in this process, after its start-up."""
    from support.app_client import AppClient  # noqa: PLC0415 - unit tests do without the server's packages
    from tbservice.server.app import create_app  # noqa: PLC0415 - the same

    with AppClient(create_app(settings)) as client:
        yield client


@pytest.fixture
def run_application():
    """The function `application`, for tests that open several."""
    return application


@pytest.fixture
def is_isolated(request):
    """Whether the test is marked `own_database`."""
    return request.node.get_closest_marker("own_database") is not None


@pytest.fixture
def empty_database_url(servers):
    """The URL of this test's own database without any table."""
    with servers.database(migrated=False) as url:
        yield url


@pytest.fixture
def database_url(request, servers, is_isolated):
    """The URL of the module's migrated database, or of the test's own; commits are real."""
    if is_isolated:
        with servers.database() as url:
            yield url
    else:
        yield request.getfixturevalue("shared_settings").database_url.get_secret_value()


@pytest.fixture
def settings(request, servers, is_isolated, database_url):
    """Settings with that database, and a bucket of the module or of the test."""
    if is_isolated:
        with servers.settings(database_url) as settings:
            yield settings
    else:
        yield request.getfixturevalue("shared_settings")


@pytest.fixture
def database(settings):
    """The store's database over the test's settings, with connections of its own."""
    from tbservice.db.database import Database  # noqa: PLC0415 - unit tests do without the server's packages

    database = Database(settings.database_url.get_secret_value(), settings.database_pool_size)
    yield database
    database.close()


@pytest.fixture(scope="module")
def workspace_maker(shared_settings):
    """A database with one connection, over which the workspaces of a module's tests are made."""
    from tbservice.db.database import Database  # noqa: PLC0415 - unit tests do without the server's packages

    with closing(Database(shared_settings.database_url.get_secret_value(), 1)) as database:
        yield database


@pytest.fixture
def workspace(request, is_isolated, database_url):
    """A new workspace of this test's own."""
    if is_isolated:
        return support.new_workspace(database_url)
    return support.make_workspace(request.getfixturevalue("workspace_maker"))


@pytest.fixture
def workspace_id(workspace):
    """The id of the test's workspace."""
    return workspace.workspace_id


@pytest.fixture
def owner_token(workspace):
    """The secret of an owner token of the test's workspace."""
    return workspace.owner_token


@pytest.fixture
def client(request, settings, is_isolated):
    """An HTTP client of the complete application, without cookies."""
    if is_isolated:
        with application(settings) as client:
            yield client
    else:
        client = request.getfixturevalue("shared_application")
        client.cookies.clear()
        yield client


@pytest.fixture(scope="session")
def live_service(servers, tmp_path_factory):
    """A running `tbservice serve`; `live_service.new_owner()` makes a workspace of one's own."""
    from tbservice.db.database import Database  # noqa: PLC0415 - unit tests do without the server's packages

    log = tmp_path_factory.mktemp("service") / "service.log"
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        support.live_service(settings, log) as live,
        closing(Database(url, 1)) as database,
    ):
        yield replace(live, database=database)
