"""Training with real frameworks, as `make test-frameworks` runs it: `make test` installs none."""

from __future__ import annotations

import pytest

from support.frameworks import FRAMEWORKS, Training
from support.uploading import Reader, Uploader

collect_ignore_glob = [] if FRAMEWORKS else ["test_*.py"]


@pytest.fixture
def uploader(live_service, tmp_path):
    return Uploader(live_service.url, live_service.new_owner(), tmp_path)


@pytest.fixture
def reader(uploader):
    reader = Reader(uploader.server, uploader.token)
    yield reader
    reader.http.close()


@pytest.fixture
def training(uploader, tmp_path):
    directory = tmp_path / "training"
    directory.mkdir()
    return Training(uploader, directory)
