"""Fixtures: `tbupload` for a workspace of the test on the live service, and that workspace's read
API.
"""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from support.buckets import Bucket
from support.servers import s3_client
from support.uploading import Reader, Uploader


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
def logdir(tmp_path):
    """An empty log directory."""
    path = tmp_path / "logdir"
    path.mkdir()
    return path


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
