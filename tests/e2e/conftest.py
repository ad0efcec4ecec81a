"""Fixtures: `tbupload` for a workspace of the test on the live service, and that workspace's read
API.
"""

from __future__ import annotations

import functools
from contextlib import closing

import psycopg
import pytest

from support import training_process
from support.buckets import Bucket
from support.event_files import append_scalars
from support.grpc_calls import live_grpc_service
from support.servers import s3_client
from support.uploading import Reader, Uploader


@pytest.fixture(scope="module")
def grpc_service(shared_settings, tmp_path_factory):
    """A running service with a gRPC port, on the module's database: the service, and the port."""
    with live_grpc_service(shared_settings, tmp_path_factory.mktemp("grpc")) as live:
        yield live


@pytest.fixture
def uploader(live_service, tmp_path):
    """`tbupload` with the owner token of a new workspace."""
    return Uploader(live_service.url, live_service.new_owner(), tmp_path)


@pytest.fixture
def reader(uploader):
    """The read API for the owner of that workspace."""
    reader = Reader(uploader.server, uploader.token)
    yield reader
    reader.http.close()


@pytest.fixture
def configured(uploader, monkeypatch):
    """Give this process, and what it starts, the server, token and configuration of `uploader`."""
    for name in ("TBHUB_SERVER", "TBHUB_TOKEN", "TBHUB_CONFIG"):
        monkeypatch.setenv(name, uploader.environment()[name])


@pytest.fixture
def run_script(uploader, tmp_path):
    """Run Python source as a training script in `tmp_path`."""
    return functools.partial(training_process.run_script, uploader, tmp_path)


@pytest.fixture
def export(uploader, tmp_path):
    """Export an experiment; return the result and the directory."""

    def export(experiment_id, format_="events", *more, name="exported"):
        directory = tmp_path / name
        what = ("--experiment", experiment_id, "--format", format_, "--output", directory)
        return uploader.run("export", *what, "--json", *more), directory

    return export


@pytest.fixture
def logdir(tmp_path):
    """An empty log directory."""
    path = tmp_path / "logdir"
    path.mkdir()
    return path


@pytest.fixture
def written(logdir):
    """A log directory with a run of five points."""
    append_scalars(logdir)
    return logdir


@pytest.fixture
def superuser(servers, live_service):
    """A connection that may change anything in the live service's database."""
    name = psycopg.conninfo.conninfo_to_dict(live_service.database_url)["dbname"]
    with servers.instance.postgres.connect_as_superuser(name) as connection:
        yield connection


@pytest.fixture
def bucket(servers, live_service, uploader, superuser):
    """The objects of the uploader's workspace, which is the latest."""
    assert uploader.token
    (workspace_id,) = superuser.execute("SELECT max(workspace_id) FROM workspaces").fetchone()
    with closing(s3_client(live_service.settings)) as plain:
        files = servers.instance.directory.path / "objects"
        yield Bucket(plain, live_service.settings.s3_bucket, workspace_id, files)
