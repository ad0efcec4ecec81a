"""Two hosts whose clocks are ten minutes fast and ten minutes slow, and an uploader a day off."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support import event_files
from support.people import cookie_of, new_session
from support.programs import skip
from support.servers import live_service, new_workspace
from support.uploading import Reader, Uploader, wait_until
from tbservice.db.database import Database

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))

pytestmark = pytest.mark.outage


def clock(seconds):
    """Return the environment of a process whose wall clock is so many seconds fast."""
    if not LIBRARIES:
        skip("faketime is missing: apt-get install --no-install-recommends faketime")
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }


MINUTES = 60
SKEWS = {"fast": 10 * MINUTES, "slow": -10 * MINUTES}
DAY = 86_400


@contextmanager
def two_hosts(own_servers, directory):
    """Yield (database, a workspace, the URL of each host) of two services on one database."""
    with (
        own_servers() as servers,
        servers.database() as url,
        servers.settings(url) as settings,
        ExitStack() as running,
    ):
        urls = {}
        for name, seconds in SKEWS.items():
            log = directory / f"{name}.log"
            service = live_service(settings, log, **clock(seconds))
            urls[name] = running.enter_context(service).url
        database = Database(url, 2)
        running.callback(database.close)
        yield database, new_workspace(url), urls


def write_logdir(logdir):
    wall_time = time.time() + DAY
    events = [event_files.version_event(wall_time)]
    events += [event_files.scalar_event("loss", step, step / 3, wall_time) for step in range(100)]
    events.append(event_files.image_event("image", 0, [b"x" * 300_000], wall_time))
    event_files.write_records(logdir / "train" / "events.out.tfevents.1.host", events)


def ask_for_token(reader, experiment, expires_at):
    """Ask for a token with this end; return the status and the answer."""
    answer = reader.http.post(
        f"/api/v1/experiments/{experiment}/tokens",
        json={"scopes": ["read"], "expires_at": expires_at.isoformat()},
    )
    return answer.status_code, answer.json()


def read_statuses(reader, session):
    """Return the statuses that the list of experiments shows to a person."""
    page = reader.http.get("/", headers=cookie_of(session), follow_redirects=True)
    return {status for status in ("Running", "Finished") if f">{status}</span>" in page.text}


def test_hosts_with_other_clocks_agree(own_servers, tmp_path, monkeypatch, record_figures):
    for name in ("logdir", "other"):
        write_logdir(tmp_path / name)
    with (
        two_hosts(own_servers, tmp_path) as (database, workspace, urls),
        ExitStack() as open_readers,
    ):
        uploaders = {
            name: Uploader(url, workspace.owner_token, tmp_path) for name, url in urls.items()
        }
        readers = {name: Reader(url, workspace.owner_token) for name, url in urls.items()}
        for reader in readers.values():
            open_readers.callback(reader.http.close)

        # An uploader a day behind its server sends images as well: S3 takes the signatures of both.
        for name, value in clock(-DAY).items():
            monkeypatch.setenv(name, value)
        sent = uploaders["fast"].run_process(
            "--logdir", tmp_path / "logdir", "--one-shot", "--json"
        )
        assert sent.code == 0, sent.err
        followed = uploaders["slow"].follow(tmp_path / "other")
        following = open_readers.enter_context(followed)
        for name in clock(0):
            monkeypatch.delenv(name)
        experiment = sent.experiment_id
        for name, uploader in uploaders.items():
            proof = (
                "verify",
                "--logdir",
                tmp_path / "logdir",
                "--experiment",
                experiment,
                "--deep",
            )
            assert uploader.run_process(*proof).code == 0, name

        # What the two show is the same: one upload that has ended, and one that runs.
        live = following.wait_for_experiment()
        wait_until(lambda: readers["fast"].get(live, "uploads")["uploads"])
        session = new_session(database, workspace.workspace_id)
        for name, reader in readers.items():
            assert read_statuses(reader, session) == {"Running", "Finished"}, name

        # A token of five minutes is valid on both, whichever makes it; one that has ended on neither.
        now = datetime.now(UTC)
        for name, reader in readers.items():
            status, made = ask_for_token(reader, experiment, now + timedelta(minutes=5))
            assert status == 201, (name, made)
            for other in readers.values():
                headers = {"Authorization": f"Bearer {made['token']}"}
                path = f"/api/v1/experiments/{experiment}/runs"
                assert other.http.get(path, headers=headers).status_code == 200
            status, refused = ask_for_token(reader, experiment, now - timedelta(minutes=5))
            assert (status, refused["code"]) == (422, "invalid")
            assert "here it is" in refused["detail"]

        # A live tail on one host sees what is written by the other.
        for name, reader in readers.items():
            wait_until(lambda reader=reader: reader.get(live, "scalars").get("train"))
            uploads = reader.get(live, "uploads")["uploads"]
            assert [upload["status"] for upload in uploads] == ["running"], name
        assert following.stop().code == 0
        record_figures(fast=SKEWS["fast"], slow=SKEWS["slow"], uploader=-DAY)
