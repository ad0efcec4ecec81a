"""Full disks, each on a small one of its own; `test_full_disks.py` runs this in a mount namespace.

FULL_DISKS names an empty directory in which file systems may be mounted.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from support import event_files, process_kills
from support.batches import ApiClient
from support.full_disk import fill
from support.outages import Fleet, ReadyClock
from support.servers import Servers, fetch, http_client, live_service, new_owner
from support.uploading import Reader, Uploader, wait_until
from tbservice.local.embedded.instance import Instance, make_settings
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.outage

DISKS = {"postgres": 420, "objects": 420, "temporary": 16, "client": 1, "shared": 64}
"""Size in MB of each disk."""

FLEET = 2
FULL_SECONDS = 6.0
OBJECTS_SECONDS_MAX = 90
"""Then SeaweedFS is started again: its LevelDB refuses writes after one that found no room."""
BLOB = os.urandom(3 << 20)
WORKERS = 2


@pytest.fixture(scope="module")
def disks():
    """The small disks, by name."""
    top = Path(os.environ["FULL_DISKS"])
    mounted = {}
    for name, megabytes in DISKS.items():
        mounted[name] = Path("/dev/shm") if name == "shared" else top / name  # noqa: S108 - in a namespace of its own
        mounted[name].mkdir(exist_ok=True)
        size = f"size={megabytes}m"
        subprocess.run(
            ["/bin/mount", "-t", "tmpfs", "-o", f"{size},mode=1777", "none", mounted[name]],
            check=True,
        )
    return mounted


@pytest.fixture(scope="module")
def instance(disks):
    """PostgreSQL on one small disk and SeaweedFS on another."""
    data = disks["postgres"] / "data"
    (disks["objects"] / "objects").mkdir()
    instance = Instance(data)
    (data / "objects").symlink_to(disks["objects"] / "objects")
    with instance:
        yield instance


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("service") / "service.log"


@pytest.fixture(scope="module")
def live(instance, disks, log):
    """A service with two workers, with its temporary files on a small disk."""
    Servers(instance)
    port = choose_ports(["service"], {})["service"]
    url = f"http://{LOOPBACK}:{port}"
    settings = make_settings(instance, host=LOOPBACK, port=port, public_url=url)
    more = {"TMPDIR": str(disks["temporary"]), "TBHUB_WORKERS": str(WORKERS)}
    with live_service(settings, log, port=port, **more) as live:
        yield live


@pytest.fixture
def fleet(live, tmp_path):
    return Fleet(live.url, new_owner(live.database_url), tmp_path)


def said(fleet):
    """Return what the uploaders have told of the outage."""
    return " ".join(upload.err() for upload in fleet.uploads)


def check(fleet, instance):
    assert fleet.verify() == [0] * FLEET
    with instance.postgres.connect_as_superuser("tbhub") as db:
        assert not any(fleet.duplicates(db))


def follows(condition):
    """Return whether the condition is true within OBJECTS_SECONDS_MAX."""
    deadline = time.monotonic() + OBJECTS_SECONDS_MAX
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return is_true


def has_died(instance):
    return instance._database._process.poll() is not None


def test_disk_of_postgres(instance, live, fleet, disks, record_figures):
    with ReadyClock(live.url) as ready, fleet.training(FLEET):
        time.sleep(3)
        filler = disks["postgres"] / "filler"
        fill(filler)
        steps = fleet.jobs[0].steps
        wait_until(lambda: 503 in ready.statuses())
        time.sleep(FULL_SECONDS)
        told = [body for _, status, body in ready.changes if status == 503]
        emptied_at = time.monotonic()
        filler.unlink()
        was_restarted = has_died(instance)
        if was_restarted:
            process_kills.restart_postgres(instance)
        with instance.postgres.connect_as_superuser("tbhub") as db:
            wait_until(lambda: fleet.stored_steps(db, 0) > steps)
        seconds = time.monotonic() - emptied_at
        fleet.finish()
    record_figures(
        postgres_had_to_be_started=was_restarted, seconds_to_catch_up=seconds, readyz=told[:2],
        uploader=said(fleet)[:400],
    )  # fmt: skip
    check(fleet, instance)
    assert "make room" in "".join(told) + said(fleet) or was_restarted


def test_disk_of_objects(instance, live, fleet, disks, record_figures):
    with ReadyClock(live.url) as ready, fleet.training(FLEET):
        time.sleep(3)
        filler = disks["objects"] / "filler"
        fill(filler)
        wait_until(lambda: "trying again" in said(fleet))
        steps = fleet.jobs[0].steps
        with instance.postgres.connect_as_superuser("tbhub") as db:
            wait_until(lambda: fleet.stored_steps(db, 0) > steps)  # the one without images
        emptied_at = time.monotonic()
        filler.unlink()
        steps = fleet.jobs[1].steps
        with instance.postgres.connect_as_superuser("tbhub") as db:
            was_restarted = not follows(lambda: fleet.stored_steps(db, 1) >= steps)
            if was_restarted:
                process_kills.kill_seaweedfs(instance)
                process_kills.restart_seaweedfs(instance)
                wait_until(lambda: fleet.stored_steps(db, 1) >= steps)
        seconds = time.monotonic() - emptied_at
        fleet.finish()
    record_figures(
        seaweedfs_had_to_be_started=was_restarted,
        seconds_to_catch_up=seconds,
        readyz=ready.statuses(),
        uploader=said(fleet)[-400:],
    )
    check(fleet, instance)
    assert "object store" in said(fleet)


def test_disk_for_temporary_files_of_service(live, disks, record_figures):
    reader = Reader(live.url, new_owner(live.database_url))
    api = ApiClient(reader.http, reader.http.headers["Authorization"].removeprefix("Bearer "))
    path = f"/api/v1/experiments/{api.new_experiment()}/blobs/{hashlib.sha256(BLOB).hexdigest()}"
    for _ in range(8):  # Python chooses the directory at first use, by writing into it
        assert reader.http.put(path, content=BLOB).is_success
    filler = disks["temporary"] / "filler"
    fill(filler)
    refused = reader.http.put(path, content=BLOB)
    filler.unlink()
    taken = reader.http.put(path, content=BLOB)
    reader.http.close()
    record_figures(refused=(refused.status_code, refused.text), taken=taken.status_code)
    assert refused.status_code == 503
    assert "make room" in refused.json()["detail"]
    assert taken.is_success


def test_shared_memory_of_service(live, log, instance, disks, record_figures):
    def have_started():  # one that is starting has no space yet, and says so
        fetch(f"{live.url}/readyz")
        return len(process_kills.started_workers(live, instance.postgres._port)) == WORKERS

    def get_all(http):
        """Request every route, so that each worker has new metrics; return the statuses."""
        paths = http.get("/api/v1/openapi.json").json()["paths"]
        return {http.get(path).status_code for path in [*paths, "/metrics"] * WORKERS}

    wait_until(have_started)
    before = {worker.pid for worker in process_kills.workers_of(live)}
    filler = disks["shared"] / "filler"
    fill(filler)
    each = httpx2.Limits(max_keepalive_connections=0)  # so that any worker answers
    with http_client(live.url, limits=each) as http:
        statuses = get_all(http)
        assert {worker.pid for worker in process_kills.workers_of(live)} == before

        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: "no worker can be started" in log.read_text())
        statuses |= get_all(http)  # of the other one
    filler.unlink()
    wait_until(have_started)
    record_figures(statuses=statuses)
    assert max(before) in {worker.pid for worker in process_kills.workers_of(live)}
    assert all(status < 500 for status in statuses)


def test_disk_of_uploader(live, disks, tmp_path, record_figures):
    logdir = tmp_path / "logdir"
    events = [event_files.version_event(), event_files.scalar_event("loss", 0, 1.0)]
    event_files.write_records(logdir / "train" / "events.out.tfevents.1.host", events)
    uploader = Uploader(live.url, new_owner(live.database_url), disks["client"])
    fill(disks["client"] / "filler")
    done = uploader.run_process("--logdir", logdir, "--one-shot", "--json")
    record_figures(code=done.code, said=done.err)
    assert done.code == 0
    assert "No space left on device" in done.err
    (disks["client"] / "filler").unlink()
    again = uploader.run_process("--logdir", logdir, "--one-shot", "--json")
    assert again.code == 0
