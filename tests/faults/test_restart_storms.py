"""Servers that are killed and started again, over and over, under live uploads."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

import pytest

from support import process_kills
from support.outages import Fleet, ReadyClock
from support.servers import embedded_servers, environment_of, new_owner, wait_ready
from support.subprocess_service import RestartedService
from tbservice.local.embedded.instance import make_settings
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.outage

FLEET = 6
STORM_SECONDS = float(os.environ.get("STORM_SECONDS", "60"))


@contextmanager
def running(directory):
    with embedded_servers() as servers:
        port = choose_ports(["service"], {})["service"]
        settings = make_settings(
            servers.instance, host=LOOPBACK, port=port, public_url=f"http://{LOOPBACK}:{port}"
        )
        environment = environment_of(settings) | {"TBHUB_PORT": str(port)}
        with RestartedService(environment, directory / "service.log") as service:
            url = f"http://{LOOPBACK}:{port}"
            wait_ready(service.process, url, service.log)
            token = new_owner(settings.database_url.get_secret_value())
            yield servers.instance, service, Fleet(url, token, directory)


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


def check(fleet, instance, figures, record_figures):
    record_figures(**figures)
    assert fleet.verify() == [0] * FLEET
    with instance.postgres.connect_as_superuser("tbhub") as db:
        assert not any(fleet.duplicates(db))


def test_service_killed_over_and_over_loses_nothing(tmp_path, record_figures):
    with running(tmp_path) as (instance, service, fleet):

        def strike():
            time.sleep(2)
            service.kill_and_start()

        figures = storm(fleet, fleet.uploader.server, service, strike)
        check(fleet, instance, figures, record_figures)


def test_postgres_restarted_over_and_over_loses_nothing(tmp_path, record_figures):
    with running(tmp_path) as (instance, service, fleet):

        def strike():
            time.sleep(5)
            process_kills.kill_postgres(instance)
            process_kills.restart_postgres(instance)

        figures = storm(fleet, fleet.uploader.server, service, strike)
        check(fleet, instance, figures, record_figures)
