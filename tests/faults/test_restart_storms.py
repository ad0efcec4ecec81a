"""Servers that are killed and started again, over and over, under live uploads."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

import pytest

from support.outages import Fleet, ReadyClock
from support.servers import database_name, environment_of, new_owner, wait_ready
from support.subprocess_service import RestartedService
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.outage

FLEET = 6
STORM_SECONDS = float(os.environ.get("STORM_SECONDS", "60"))


@contextmanager
def running(own_servers, directory):
    with own_servers() as servers, servers.database() as database_url:
        port = choose_ports(["service"], {})["service"]
        url = f"http://{LOOPBACK}:{port}"
        with servers.settings(database_url) as settings:
            environment = environment_of(settings)
            environment |= {"TBHUB_PORT": str(port), "TBHUB_PUBLIC_URL": url}
            with RestartedService(environment, directory / "service.log") as service:
                wait_ready(service.process, url, service.log)
                fleet = Fleet(url, new_owner(database_url), directory)
                yield servers, service, fleet, database_name(database_url)


def storm(fleet, url, service, strike):
    """Strike until the time is over; return the figures once every upload has caught up."""
    with ReadyClock(url) as ready, fleet.training(FLEET):
        time.sleep(2)
        end, strikes = time.monotonic() + STORM_SECONDS, 0
        while time.monotonic() < end:
            strike()
            strikes += 1
        wait_ready(service.process, url, service.log)
        seconds_to_ready = time.monotonic() - end
        fleet.finish()
        return {
            "strikes": strikes,
            "seconds_to_ready": seconds_to_ready,
            "seconds_to_catch_up": time.monotonic() - end,
            "readyz_changes": len(ready.statuses()) - 1,
            "steps": sum(job.steps for job in fleet.jobs),
        }


def check(fleet, servers, database, figures, record_figures):
    record_figures(**figures)
    assert fleet.verify() == [0] * FLEET
    with servers.instance.postgres.connect_as_superuser(database) as db:
        assert not any(fleet.duplicates(db))


def test_service_killed_over_and_over_loses_nothing(own_servers, tmp_path, record_figures):
    with running(own_servers, tmp_path) as (servers, service, fleet, database):

        def strike():
            time.sleep(2)
            service.kill_and_start()

        figures = storm(fleet, fleet.uploader.server, service, strike)
        check(fleet, servers, database, figures, record_figures)


def test_postgres_restarted_over_and_over_loses_nothing(own_servers, tmp_path, record_figures):
    with running(own_servers, tmp_path) as (servers, service, fleet, database):

        def strike():
            time.sleep(5)
            servers.kill_postgres()
            servers.restart_postgres()

        figures = storm(fleet, fleet.uploader.server, service, strike)
        check(fleet, servers, database, figures, record_figures)
