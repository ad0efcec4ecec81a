"""A service with a proxy at every connection, and what an upload without faults stores there.

`pytest tests/faults` tries a selection of all calls, statements and kills; with `--all-faults`,
every single one.
"""

from __future__ import annotations

import pytest

from support.complete_logdir import write_complete_logdir
from support.fault_env import CleanUpload, clean_upload, fault_env


def pytest_addoption(parser):
    parser.addoption(
        "--all-faults",
        action="store_true",
        help="tests/faults: let every single call fail, not a choice of them",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "every_fault: takes minutes; runs with --all-faults only")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--all-faults", default=False):
        dropped = [item for item in items if item.get_closest_marker("every_fault")]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


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
    return CleanUpload(logdir, ended.done, tenant.stored(experiment_id))


@pytest.fixture
def tenant(world):
    """A tenant with an empty workspace."""
    world.disarm()
    yield world.tenant()
    world.disarm()
