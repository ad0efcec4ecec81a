"""S3 is away for a minute during uploads: scalars go on, blobs follow, the service stays ready."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

import pytest

from support import process_kills
from support.outages import Fleet, ReadyClock
from support.servers import database_name, live_service, new_owner
from support.uploading import wait_until

pytestmark = pytest.mark.outage

FLEET = 4
AWAY_SECONDS = float(os.environ.get("AWAY_SECONDS", "60"))


@contextmanager
def killed(instance):
    """SeaweedFS is killed, and started at the end."""
    process_kills.kill_seaweedfs(instance)
    yield
    process_kills.restart_seaweedfs(instance)


@contextmanager
def hanging(instance):
    """SeaweedFS takes connections and requests, and answers nothing until the end."""
    process = instance._objects._process
    process.send_signal(signal.SIGSTOP)
    yield
    process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("away", [killed, hanging])
def test_object_store_away_delays_only_what_needs_it(own_servers, tmp_path, record_figures, away):
    with own_servers() as servers, servers.database() as url, servers.settings(url) as settings:
        instance, database = servers.instance, database_name(url)
        with live_service(settings, tmp_path / "service.log") as live:
            fleet = Fleet(live.url, new_owner(url), tmp_path)
            with ReadyClock(live.url) as ready, fleet.training(FLEET):
                time.sleep(3)
                with instance.postgres.connect_as_superuser(database) as db:
                    with away(instance):
                        time.sleep(AWAY_SECONDS)
                        logged = [job.steps for job in fleet.jobs]
                        stored = [fleet.stored_steps(db, number) for number in range(FLEET)]
                        back_at = time.monotonic()
                    seconds_to_start = time.monotonic() - back_at
                    wait_until(
                        lambda: all(
                            fleet.stored_steps(db, n) >= logged[n] for n in range(FLEET)
                        )
                    )  # fmt: skip
                seconds = time.monotonic() - back_at
                fleet.finish()
            record_figures(
                logged_at_end_of_outage=logged,
                stored_at_end_of_outage=stored,
                seconds_of_its_start=seconds_to_start,
                seconds_to_catch_up=seconds,
                readyz=ready.statuses(),
            )
            assert fleet.verify() == [0] * FLEET
            with instance.postgres.connect_as_superuser(database) as db:
                assert not any(fleet.duplicates(db))
    assert ready.statuses() == [200]
    for number in range(0, FLEET, 2):  # without images
        assert logged[number] - stored[number] < 50
