"""The primary PostgreSQL is killed and a standby promoted, while uploads go on and the service is not
restarted: it has a URL of both.

With synchronous replication nothing that was acknowledged is lost. With a standby that lags, running
uploads repair it, and `verify` tells what is missing of those that had ended.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import pytest
from pydantic import SecretStr

from support import event_files, process_kills
from support.outages import Fleet, ReadyClock
from support.servers import embedded_servers, live_service, new_owner
from support.standby import standby_of
from support.uploading import wait_until
from tbservice.local.embedded.instance import make_settings
from tbservice.local.embedded.ports import LOOPBACK

pytestmark = [
    pytest.mark.outage,
    pytest.mark.plain("a node of a cluster has one address: test_failover promotes its standby"),
]

FLEET = 4
LAG_SECONDS = 6.0
RUN_SECONDS = 5.0


def url_of_both(first: str, second: str) -> str:
    """Return a URL that finds whichever server is the primary."""
    parts = urlsplit(first)
    user, _, host = parts.netloc.rpartition("@")
    hosts = f"{user}@{host},{urlsplit(second).netloc.rpartition('@')[2]}"
    query = f"{parts.query}&target_session_attrs=read-write"
    return urlunsplit(parts._replace(netloc=hosts, query=query))


class ShortUploads:
    """Uploads one small log directory after the other; each ends, and is acknowledged."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.ended: list[tuple[float, object, str]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._has_ended.is_set():
            logdir = self._fleet.directory / f"short{number}"
            number += 1
            events = [event_files.version_event()]
            events += [event_files.scalar_event("loss", step, step / 3) for step in range(50)]
            events.append(event_files.image_event("image", 0, [f"short {number}".encode() * 500]))
            event_files.write_records(logdir / "train" / "events.out.tfevents.1.host", events)
            done = self._fleet.uploader.run_process("--logdir", logdir, "--one-shot", "--json")
            if done.code == 0:
                self.ended.append((time.monotonic(), logdir, done.experiment_id))


@contextmanager
def replicated(directory, *, is_synchronous):
    """Yield (servers, standby, service, fleet) with a service that knows both."""
    with (
        embedded_servers() as servers,
        standby_of(servers.instance, directory / "standby") as standby,
    ):
        instance = servers.instance
        if is_synchronous:
            with instance.postgres.connect_as_superuser("postgres") as db:
                db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                db.execute("SELECT pg_reload_conf()")
        settings = make_settings(instance, host=LOOPBACK, port=0, public_url="http://testserver")
        both = url_of_both(instance.postgres.url(), standby.postgres.url())
        settings = settings.model_copy(update={"database_url": SecretStr(both)})
        with live_service(settings, directory / "service.log") as live:
            yield servers, standby, live, Fleet(live.url, new_owner(both), directory)


@pytest.mark.parametrize("is_synchronous", [True, False], ids=["synchronous", "lagging"])
def test_promotion_during_uploads(tmp_path, is_synchronous, record_figures):
    with replicated(tmp_path, is_synchronous=is_synchronous) as (servers, standby, live, fleet):
        instance = servers.instance
        with ReadyClock(live.url) as ready, fleet.training(FLEET), ShortUploads(fleet) as short:
            time.sleep(RUN_SECONDS)
            wait_until(lambda: short.ended)
            if not is_synchronous:
                before = len(short.ended)
                standby.cut_off()
                time.sleep(LAG_SECONDS)
                wait_until(lambda: len(short.ended) > before)
            acknowledged = list(short.ended)
            logged = [job.steps for job in fleet.jobs]
            killed_at = time.monotonic()
            process_kills.kill_postgres(instance)
            standby.promote()
            with standby.postgres.connect_as_superuser("tbhub") as db:
                kept = [fleet.stored_steps(db, number) for number in range(FLEET)]
                wait_until(lambda: fleet.stored_steps(db, 0) > kept[0])
            seconds_to_commit = time.monotonic() - killed_at
            time.sleep(RUN_SECONDS)
            fleet.finish()
        lost = [logdir for _, logdir, id_ in acknowledged if fleet.missing(logdir, id_)]
        with standby.postgres.connect_as_superuser("tbhub") as db:
            duplicates = fleet.duplicates(db)
        record_figures(
            seconds_to_first_commit=seconds_to_commit,
            readyz=ready.statuses(),
            steps_logged_when_killed=logged,
            steps_on_promoted_standby=kept,
            short_uploads_acknowledged=len(acknowledged),
            short_uploads_lost=len(lost),
        )
        assert fleet.verify() == [0] * FLEET
        assert not any(duplicates)
        if is_synchronous:
            assert lost == []
        else:
            assert lost, "the standby did not lag"
            for logdir in lost:  # what the page on failovers tells people to do
                again = fleet.uploader.run_process("--logdir", logdir, "--one-shot", "--json")
                assert again.code == 0, again.err
                assert fleet.missing(logdir, again.experiment_id) == 0
        assert seconds_to_commit < 30
