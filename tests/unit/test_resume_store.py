"""The resume store: which uploads are found again, which are dropped, and that no error in its
file stops an upload.
"""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from tbupload.file_lock import locked
from tbupload.upload import resume_store
from tbupload.upload.resume_store import ResumeStore, UploadKey, uploads_path

KEY = UploadKey("https://tbhub.example", "/runs", {"name": "", "plugins": ["scalars"]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tbhub" / "uploads.json"


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def uploads(path, warnings):
    return ResumeStore(path, warnings.append)


def made(uploads, key=KEY, experiment_id="abc"):
    """Begin an upload and record its experiment."""
    upload = replace(
        uploads.find_or_create(key),
        experiment_id=experiment_id,
        url=f"https://tbhub.example/{experiment_id}/",
    )
    uploads.save(upload)
    return upload


def test_file_is_beside_config_file():
    assert uploads_path({"TBHUB_CONFIG": "/x/y.toml"}).as_posix() == "/x/uploads.json"


def test_same_command_finds_its_experiment_again(path, uploads, warnings):
    made(uploads)
    again = ResumeStore(path, warnings.append).find_or_create(KEY)
    assert (again.experiment_id, again.url) == ("abc", "https://tbhub.example/abc/")
    assert warnings == []


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, server="https://other.example"),
        replace(KEY, logdir="/other"),
        replace(KEY, choice={**KEY.choice, "name": "another"}),
        replace(KEY, choice={**KEY.choice, "plugins": None}),
    ],
    ids=["server", "logdir", "name", "plugins"],
)
def test_another_command_does_not(uploads, other):
    made(uploads)
    assert uploads.find_or_create(other).experiment_id is None
    assert uploads.find_or_create(KEY).experiment_id == "abc"


def test_resume_record_of_died_process_reuses_its_key(uploads):
    assert uploads.find_or_create(KEY).request_key == uploads.find_or_create(KEY).request_key


def test_new_begins_another_one_which_is_one_from_then_on(uploads):
    first = made(uploads)
    second = uploads.find_or_create(KEY, is_new=True)
    assert (second.experiment_id, second.request_key != first.request_key) == (None, True)
    assert uploads.find_or_create(KEY).request_key == second.request_key


def test_find_returns_known_upload_and_creates_none(uploads, path):
    assert uploads.find(KEY) is None
    assert not path.exists()
    made(uploads)
    assert uploads.find(KEY).experiment_id == "abc"
    assert uploads.find(replace(KEY, logdir="/other")) is None


def test_resume_record_of_gone_experiment_is_replaced_once(uploads):
    gone = made(uploads)
    first = uploads.find_or_create(KEY, replaced=gone)
    second = uploads.find_or_create(KEY, replaced=gone)
    assert gone.request_key != first.request_key == second.request_key


def test_oldest_are_forgotten_first(uploads, monkeypatch):
    monkeypatch.setattr(resume_store, "RECORDS_MAX", 3)
    for name in "abcd":
        made(uploads, replace(KEY, logdir=f"/{name}"), name)
        uploads.find_or_create(replace(KEY, logdir="/a"))
    kept = {
        name: uploads.find_or_create(replace(KEY, logdir=f"/{name}")).experiment_id
        for name in "acd"
    }
    assert kept == {"a": "a", "c": "c", "d": "d"}


def test_only_its_owner_may_read_it_and_it_holds_no_secret(path, uploads):
    made(uploads)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "token" not in path.read_text()
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "uploads.json",
        "uploads.json.lock",
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        json.dumps({"format": 2, "uploads": []}).encode(),
        json.dumps({"format": 1, "uploads": [{}]}).encode(),
        json.dumps({"format": 1, "uploads": None}).encode(),
    ],
)
def test_resume_store_damaged_is_reported_and_replaced(path, uploads, warnings, content):
    path.parent.mkdir()
    path.write_bytes(content)
    made(uploads)
    assert len(warnings) == 1
    assert "damaged" in warnings[0]
    assert "\n" not in warnings[0]
    assert uploads.find_or_create(KEY).experiment_id == "abc"


def test_any_byte_of_file_may_be_flipped(path, uploads):
    made(uploads)
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]
        )
        assert uploads.find_or_create(KEY).experiment_id in {None, "abc"}


def test_resume_file_that_cannot_be_written_only_warns(path, uploads, warnings):
    path.parent.write_text("a file where the directory should be")
    assert made(uploads).request_key != made(uploads).request_key
    assert len(warnings) == 1
    assert "--experiment" in warnings[0]


def test_resume_file_that_can_only_be_read_is_used(path, uploads, warnings):
    made(uploads)
    lock = path.with_name("uploads.json.lock")
    lock.unlink(missing_ok=True)
    lock.mkdir()  # cannot be opened
    assert ResumeStore(path, warnings.append).find_or_create(KEY).experiment_id == "abc"
    assert len(warnings) == 1
    assert "create another one the next time" in warnings[0]


def test_resume_lock_held_elsewhere_is_waited_for_briefly(path, uploads, warnings, monkeypatch):
    monkeypatch.setattr(resume_store, "LOCK_SECONDS", 0.1)
    path.parent.mkdir()
    with locked(path.with_name("uploads.json.lock"), 1):
        assert uploads.find_or_create(KEY).experiment_id is None
    assert "locked by another process" in warnings[0]


def test_processes_that_write_at_once_lose_nothing(path):
    script = (
        "import sys; from pathlib import Path; from tbupload.upload.resume_store import *\n"
        "for number in range(10):\n"
        "    ResumeStore(Path(sys.argv[1]), sys.exit).find_or_create(UploadKey('s', f'/{sys.argv[2]}/{number}', {}))\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, path, str(number)]) for number in range(3)
    ]
    assert [process.wait(60) for process in processes] == [0] * 3
    assert len(json.loads(path.read_text())["uploads"]) == 30


def test_process_that_dies_with_lock_does_not_keep_it(path, uploads, warnings):
    path.parent.mkdir()
    script = (
        "import os, signal, sys; from pathlib import Path; from tbupload.file_lock import locked\n"
        "with locked(Path(sys.argv[1]), 1):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, path.with_name("uploads.json.lock")], check=False)
    made(uploads)
    assert (warnings, uploads.find_or_create(KEY).experiment_id) == ([], "abc")


def test_resume_store_keeps_logdir_whose_name_is_not_text(uploads):
    key = replace(KEY, logdir=os.fsencode("/ä\udcff").decode("utf-8", "backslashreplace"))
    made(uploads, key)
    assert uploads.find_or_create(key).experiment_id == "abc"
