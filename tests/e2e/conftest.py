"""Fixtures: `tbupload` for a workspace of the test's own on the live service, and that workspace's read API."""

from __future__ import annotations

import pytest

from support.uploading import Reader, Uploader


@pytest.fixture
def uploader(live_service, tmp_path):
    """`tbupload` with the owner token of a new workspace."""
    return Uploader(live_service.url, live_service.new_owner(), tmp_path)


@pytest.fixture
def reader(uploader):
    """What that workspace's owner reads."""
    reader = Reader(uploader.server, uploader.token)
    yield reader
    reader.http.close()


@pytest.fixture
def logdir(tmp_path):
    """An empty logdir."""
    path = tmp_path / "logdir"
    path.mkdir()
    return path
