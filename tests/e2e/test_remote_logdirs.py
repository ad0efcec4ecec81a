"""Log directories in an object store: a real S3 server, by the package that users have for it."""

from __future__ import annotations

import json
import os
from contextlib import closing

import fsspec
import pytest

from support import event_files
from support.servers import s3_client
from support.source_code import ROOT
from support.uploading import wait_until
from tbupload import remote_files

REAL_FILES = ROOT / "tests" / "data" / "pytorch"


@pytest.fixture
def remote(live_service, monkeypatch):
    """An empty bucket, which `FSSPEC_S3` makes known to fsspec."""
    settings = live_service.settings
    options = {
        "key": settings.s3_access_key.get_secret_value(),
        "secret": settings.s3_secret_key.get_secret_value(),
        "client_kwargs": {
            "endpoint_url": settings.s3_endpoint,
            "region_name": settings.s3_region,
        },
    }
    monkeypatch.setenv("FSSPEC_S3", json.dumps(options))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of a s3fs that is older than its boto3
    with closing(s3_client(settings)) as client:
        name = f"runs-{os.urandom(6).hex()}"
        client.create_bucket(Bucket=name)
        yield Remote(client, name)


class Remote:
    """A bucket with event files."""

    def __init__(self, client, name):
        self.client = client
        self.name = name
        self.url = f"s3://{name}/some/runs"

    def put(self, path, content):
        self.client.put_object(Bucket=self.name, Key=f"some/runs/{path}", Body=content)

    def put_directory(self, directory):
        for path in directory.rglob("*tfevents*"):
            self.put(path.relative_to(directory).as_posix(), path.read_bytes())

    def delete(self, path):
        self.client.delete_object(Bucket=self.name, Key=f"some/runs/{path}")


def content_of(tmp_path, steps):
    events = [event_files.scalar_event("loss", step, 1.0) for step in steps]
    event_files.write_records(tmp_path / "written", events)
    return (tmp_path / "written").read_bytes()


def steps_of(reader, experiment):
    return sorted(reader.scalars(experiment).get("a", {}).get("loss", {}))


def test_real_files_in_s3_arrive_as_local_ones(uploader, remote):
    remote.put_directory(REAL_FILES)
    sent = uploader.run_process(remote.url, "--one-shot", "--json")
    assert sent.code == 0, sent.err
    experiment = json.loads(sent.out.splitlines()[0])["experiment_id"]
    assert sent.done["scalars"] == 105

    again = uploader.run_process(remote.url, "--one-shot", "--json")
    assert (again.code, again.done["bytes"]) == (0, 0), again.err
    assert "nothing new" in again.err

    for logdir in (remote.url, REAL_FILES):
        verified = uploader.run_process(
            "verify", "--logdir", logdir, "--experiment", experiment, "--strict", "--deep"
        )
        assert verified.code == 0, verified.out + verified.err


def test_objects_that_grow_are_followed(uploader, reader, remote, tmp_path):
    remote.put("a/tfevents.1", content_of(tmp_path, range(3)))
    with uploader.follow(remote.url) as following:
        experiment = following.wait_for_experiment()
        wait_until(lambda: steps_of(reader, experiment) == [0, 1, 2])
        remote.put("a/tfevents.1", content_of(tmp_path, range(6)))
        wait_until(lambda: steps_of(reader, experiment) == list(range(6)))
        remote.put("a/tfevents.2", content_of(tmp_path, range(6, 8)))
        wait_until(lambda: steps_of(reader, experiment) == list(range(8)))
        remote.put("a/tfevents.2", content_of(tmp_path, range(6, 9)))
        ended = following.stop()
    assert ended.code == 0, ended.err
    assert steps_of(reader, experiment) == list(range(9))


def test_deleted_object_is_no_failure_once_it_was_sent(uploader, reader, remote, tmp_path):
    remote.put("a/tfevents.1", content_of(tmp_path, range(3)))
    remote.put("b/tfevents.1", content_of(tmp_path, range(3)))
    with uploader.follow(remote.url) as following:
        experiment = following.wait_for_experiment()
        wait_until(lambda: len(reader.scalars(experiment)) == 2)
        remote.delete("b/tfevents.1")
        remote.put("c/tfevents.1", content_of(tmp_path, range(3)))
        wait_until(lambda: len(reader.scalars(experiment)) == 3)
        ended = following.stop()
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("{url}/nothing", 2, "nothing at or below this address"),
        ("{url}/a/tfevents.1", 2, "is a file"),
        ("gs://bucket/runs", 2, "install tbhub's wheel with the extra 'gs'"),
    ],
)
def test_wrong_address_is_one_line(uploader, remote, tmp_path, url, code, said):
    remote.put("a/tfevents.1", content_of(tmp_path, range(3)))
    ended = uploader.run_process(url.format(url=remote.url), "--one-shot", is_forked=False)
    assert (ended.code, ended.out) == (code, ""), ended.err
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1, ended.err


def test_refused_access_is_one_line(uploader, remote, monkeypatch):
    options = json.loads(os.environ["FSSPEC_S3"])
    monkeypatch.setenv("FSSPEC_S3", json.dumps({**options, "secret": "wrong"}))
    ended = uploader.run_process(remote.url, "--one-shot", is_forked=False)
    assert ended.code == 2
    assert "cannot be listed" in ended.err
    assert len(ended.err.splitlines()) == 1, ended.err


@pytest.fixture
def memory(monkeypatch):
    """The URL of a directory in fsspec's memory of this process, with the same real files."""
    monkeypatch.setattr(remote_files, "_logdirs", {})
    files = fsspec.filesystem("memory")
    for path in REAL_FILES.rglob("*tfevents*"):
        files.pipe(f"/runs/{path.relative_to(REAL_FILES).as_posix()}", path.read_bytes())
    yield "memory://runs"
    files.rm("/runs", recursive=True)


def test_files_of_other_systems_of_fsspec_arrive(uploader, memory):
    sent = uploader.run("--logdir", memory, "--one-shot", "--json")
    assert (sent.code, sent.done["scalars"]) == (0, 105), sent.err
    experiment = json.loads(sent.out.splitlines()[0])["experiment_id"]
    verified = uploader.run("verify", "--logdir", memory, "--experiment", experiment)
    assert verified.code == 0, verified.out


def test_damaged_remote_record_names_its_file(uploader, memory):
    files = fsspec.filesystem("memory")
    path = next(path for path in files.find("/runs/scalars") if "group" not in path)
    content = bytearray(files.cat(path))
    content[len(content) // 2] ^= 255
    files.pipe(path, bytes(content))
    ended = uploader.run("--logdir", memory, "--dry-run", "--json")
    assert ended.code == 1
    assert list(ended.done["skipped_files"]) == [f"memory:/{path}"]


def test_projector_of_remote_logdir_is_named_as_not_sent(uploader, memory):
    fsspec.filesystem("memory").pipe("/runs/projector_config.pbtxt", b"")
    ended = uploader.run("--logdir", memory, "--dry-run")
    assert ended.code == 1
    assert "read from local directories only" in ended.err


def test_url_of_local_file_system_is_local_path(uploader):
    ended = uploader.run("--logdir", REAL_FILES.as_uri(), "--dry-run", "--json")
    assert (ended.code, ended.done["scalars"]) == (0, 105), ended.err
