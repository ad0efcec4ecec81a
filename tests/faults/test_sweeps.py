"""Uploads of the same bytes, deletions, frozen copies, kills, and sweeps by two servers and a command,
all at once: nothing is missing afterwards, and nothing is left.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest
from sqlalchemy import text

from support.batches import ApiClient, images, segment, stream
from support.servers import environment_of, fetch, http_client, new_workspace, s3_client
from support.subprocess_service import RestartedService
from support.waiting import wait_until
from tbservice.db.database import Database
from tbservice.errors import StartupError
from tbservice.integrity.check import CheckOptions
from tbservice.local.embedded.ports import choose_ports
from tbservice.server.maintenance import check_service, sweep_objects
from tbservice.throttle import Progress, Throttle

ROUNDS, CLIENTS = 5, 3
DELETED_PER_KILL = 3
"""Objects that sweeps have deleted when a server is killed."""

CONTENTS = [b"content %d" % number for number in range(6)]
SWEEPS = {"TBHUB_SWEEP_HOURS": "0.0001", "TBHUB_SWEEP_OLDER_THAN_DAYS": "0"}

pytestmark = pytest.mark.own_database


@pytest.fixture
def services(settings, tmp_path):
    """Two servers on one database and bucket, whose sweeps are due all the time."""
    with ExitStack() as stack:
        started = []
        for port in choose_ports(["first", "second"], {}).values():
            url = f"http://127.0.0.1:{port}"
            more = {"TBHUB_PORT": str(port), "TBHUB_PUBLIC_URL": url}
            environment = environment_of(settings) | more | SWEEPS
            service = RestartedService(environment, tmp_path / f"{port}.log")
            started.append((stack.enter_context(service), url))
        yield started


class Client:
    """Writes the same few images again and again, and deletes most of what it has written."""

    def __init__(self, urls, token, seed):
        self.urls = urls
        self.token = token
        self.random = random.Random(seed)  # noqa: S311 - repeatable choices

    def call(self, act):
        """Try until one of the servers has answered; both may have been killed."""

        def try_again():
            url = self.random.choice(self.urls)
            try:
                with http_client(url, timeout=20) as http:
                    answer = act(ApiClient(http, self.token))
            except httpx2.TransportError:
                return None
            # In a list, since an answer is true only if it is no error.
            return None if answer.status_code in {429, 503} else [answer]

        return wait_until(try_again)[0]

    def run(self):
        for number in range(ROUNDS):
            answer = self.call(lambda api: api.request("POST", "/experiments", json={}))
            assert answer.status_code == 201, answer.text
            experiment = answer.json()["experiment_id"]
            self.write(experiment)
            if number == ROUNDS - 1:
                return
            with ThreadPoolExecutor(1) as pool:
                frozen = pool.submit(self.freeze, experiment) if number % 3 == 0 else None
                self.delete(experiment, "image")
                self.delete(experiment, "frozen")
                if frozen:
                    frozen.result()

    def write(self, experiment):
        shared = [[self.random.choice(CONTENTS)] for _ in range(3)]
        frozen = [[b"frozen %d" % self.random.randrange(20)]]
        sent = images("image", range(3), shared), images("frozen", [0], frozen)
        batch = segment(stream(), 0, 1, *sent)
        answer = self.call(lambda api: api.send(experiment, batch))
        assert answer.status_code == 200, answer.text

    def freeze(self, experiment):
        link = {"frozen": True, "tags": "frozen"}
        path = f"/experiments/{experiment}/links"
        answer = self.call(lambda api: api.request("POST", path, json=link))
        assert answer.status_code in {201, 404}, answer.text

    def delete(self, experiment, tag):
        series = {"run": "train", "tag": tag}
        path = f"/experiments/{experiment}/series"
        answer = self.call(lambda api: api.request("DELETE", path, params=series))
        assert answer.status_code in {204, 404}, answer.text


def test_sweeps_beside_everything_lose_and_leave_nothing(
    settings, database_url, services, record_figures
):
    workspace = new_workspace(database_url)
    urls = [url for _, url in services]
    clients = [Client(urls, workspace.owner_token, seed) for seed in range(CLIENTS)]
    for url in urls:
        wait_until(lambda: is_ready(url))  # noqa: B023 - called at once
    deleted = kills = 0
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(client.run) for client in clients]
        while not all(each.done() for each in running):
            deleted += sweep(settings).objects
            if kills < 2 and deleted // DELETED_PER_KILL > kills:
                services[kills % 2][0].kill_and_start()
                kills += 1
        for each in running:
            each.result()
    damage = check(settings).damage
    database = Database(database_url, 1)
    with database.transaction(workspace.workspace_id) as db:
        db.execute(text("DELETE FROM blob_uploads"))  # of killed servers: after 7 days they count
    database.close()
    last = sweep(settings).objects
    findings = check(settings)
    plain = s3_client(settings)
    bucket = plain.list_objects_v2(Bucket=settings.s3_bucket).get("Contents", [])
    plain.close()
    record_figures(deleted=deleted, kills=kills, last=last, kept=len(bucket))
    assert (damage, findings.damage, findings.looked.blobs) == ([], [], len(bucket))
    assert kills > 0
    assert sweep(settings).objects == 0


def is_ready(url):
    try:
        return fetch(f"{url}/readyz").is_success
    except httpx2.TransportError:
        return False


def check(settings):
    options = CheckOptions(reads_content=True)
    return check_service(settings, options, Throttle(None), Progress(None), lambda _: None)[0]


def sweep(settings):
    """Sweep; again while the server has not noticed that a session has ended which held it up."""

    def try_again():
        try:
            return [sweep_objects(settings, 0.0, Progress(None), deletes=True)]
        except StartupError as error:
            assert "a backup runs" in str(error)  # noqa: PT017 - other errors are none to wait for
            return None

    return wait_until(try_again)[0]
