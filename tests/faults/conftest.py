"""A service with a proxy at every connection, and what an upload without faults stores there.

`pytest tests/faults` tries a selection of all calls, statements and kills; with `--all-faults`,
every single one. Tests marked `outage` take up to minutes each and run with `make test-faults` alone.
"""

from __future__ import annotations

import pytest

from support.complete_logdir import write_complete_logdir
from support.fault_env import CleanUpload, clean_upload, fault_env

_FIGURES = pytest.StashKey[list[str]]()


def pytest_addoption(parser):
    parser.addoption(
        "--all-faults",
        action="store_true",
        help="tests/faults: let every single call fail, not a choice of them",
    )

    parser.addoption(
        "--outages", action="store_true", help="tests/faults: run the tests marked `outage` alone"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "every_fault: takes minutes; runs with --all-faults only")
    config.addinivalue_line("markers", "outage: takes up to minutes; runs with --outages only")


def pytest_collection_modifyitems(config, items):
    has_every_fault = config.getoption("--all-faults", default=False)
    is_outage_run = config.getoption("--outages", default=False)
    dropped = [
        item
        for item in items
        if bool(item.get_closest_marker("outage")) != is_outage_run
        or (item.get_closest_marker("every_fault") and not has_every_fault)
    ]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]


def pytest_terminal_summary(terminalreporter):
    figures = terminalreporter.config.stash.get(_FIGURES, [])
    for line in figures:
        terminalreporter.write_line(line)


@pytest.fixture
def record_figures(request):
    """Record what a test has measured, to be shown after all tests."""

    def record(**figures: object) -> None:
        shown = ", ".join(f"{name}={_shorten(value)}" for name, value in figures.items())
        lines = request.config.stash.setdefault(_FIGURES, [])
        lines.append(f"{request.node.name}: {shown}")

    return record


def _shorten(value: object) -> object:
    return round(value, 2) if isinstance(value, float) else value


@pytest.fixture(scope="session")
def is_everything_tried(request):
    """Whether every call is made to fail in turn, however long that takes."""
    return request.config.getoption("--all-faults", default=False)


@pytest.fixture(scope="session")
def world(servers, tmp_path_factory):
    """The service and its proxies."""
    with fault_env(servers, tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture(scope="session")
def clean(world, tmp_path_factory):
    """The complete logdir, uploaded without faults."""
    return clean_upload(
        world, write_complete_logdir(tmp_path_factory.mktemp("complete") / "logdir")
    )


@pytest.fixture(scope="session")
def both(world, clean, tmp_path_factory):
    """Another host's logdir with the same runs and other values, uploaded after the complete one,
    without faults.
    """
    tenant = world.tenant()
    world.disarm()
    logdir = write_complete_logdir(
        tmp_path_factory.mktemp("other") / "logdir", 1, "other", seconds_later=0.25
    )
    experiment_id = tenant.upload(clean.logdir).experiment_id
    ended = tenant.upload(logdir, "--experiment", experiment_id)
    return CleanUpload(world, logdir, ended.done, tenant.stored(experiment_id))


@pytest.fixture
def tenant(world):
    """A tenant with an empty workspace."""
    world.disarm()
    yield world.tenant()
    world.disarm()
