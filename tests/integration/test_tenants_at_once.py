"""Many tenants read many experiments at once from a real server with many threads: none ever gets another's data."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx2
import pytest
import urllib3

from support.batches import Api, images, scalars, segment, stream, texts
from support.event_files import PNG

TENANTS = 8
EXPERIMENTS_EACH = 2
THREADS = 16
REQUESTS = 2_000


@dataclass(frozen=True)
class Target:
    """An experiment, whose every name and value holds its mark, and who may read it."""

    experiment: str
    mark: str
    blob: str
    tenant: int
    token: str


@pytest.fixture(scope="module")
def targets(live_service):
    """Experiments alike in everything but their marks; the tokens are owners' and readers' in turns."""
    found = []
    with httpx2.Client(base_url=live_service.url, trust_env=False, timeout=60) as client:
        for tenant in range(TENANTS):
            api = Api(client, live_service.new_owner())
            for number in range(EXPERIMENTS_EACH):
                mark = f"mark{tenant}x{number}q"
                experiment = api.new_experiment(name=mark, description=mark)
                value = float(1_000_003 + 10 * tenant + number)
                series = [
                    scalars("loss", range(300), [value] * 300),
                    scalars(f"tag {mark}", [0]),
                    texts("note", [0], [mark.encode()]),
                    images("photo", [0], [[b"1", b"1", PNG + mark.encode()]]),
                ]
                api.write(experiment, segment(stream(f"run {mark}"), 0, 9, *series))
                shown = api.get(experiment, "blob_sequences/data", downsample=1)
                blob = shown[f"run {mark}"]["photo"]["values"][0][2]["key"]
                token = api.new_token(experiment, "read") if number else api.headers["Authorization"].split()[1]
                found.append(Target(experiment, mark, blob, tenant, token))
    return found


def requests_for(target):
    """(method, path, form) of every kind of address that shows an experiment's data; none repeats its mark."""
    card = {"requests": json.dumps([{"plugin": "scalars", "tag": "loss"}])}
    base = f"/experiment/{target.experiment}"
    sessions = json.dumps({"allowedStatuses": [0], "sliceSize": 9})
    return (
        ("POST", f"{base}/data/plugin/timeseries/timeSeries", card),
        ("POST", f"{base}/experiment/defaultExperimentId/data/plugin/timeseries/timeSeries", card),
        ("GET", f"{base}/data/plugin/timeseries/tags", None),
        ("GET", f"{base}/data/plugin/scalars/tags", None),
        ("GET", f"{base}/data/plugin/text/tags", None),
        ("GET", f"{base}/data/plugin/images/tags", None),
        ("GET", f"{base}/data/runs", None),
        ("GET", f"{base}/data/environment", None),
        ("GET", f"{base}/data/plugins_listing", None),
        ("GET", f"{base}/data/plugin/hparams/session_groups?{urlencode({'request': sessions})}", None),
        ("GET", f"{base}/data/blob/{target.blob}", None),
        ("GET", f"{base}/data/plugin/timeseries/imageData?imageId={target.blob}", None),
        ("GET", f"/api/v1/experiments/{target.experiment}/scalars/data?downsample=5", None),
        ("GET", f"/api/v1/blobs/{target.blob}", None),
    )


MARKLESS = ("plugins_listing", "session_groups")


def test_another_tenants_data_is_never_served(live_service, targets):
    """Every request is checked for the marks of all experiments: its own where it may read, and never another's."""
    pool = urllib3.PoolManager(maxsize=THREADS, retries=False)
    marks = {target.mark.encode() for target in targets}
    owners = {(target.tenant, target.token) for target in targets if target.mark.endswith("x0q")}

    def ask(seed):
        chance = random.Random(seed)  # noqa: S311 - a test's order, no secret
        reader, target, other = chance.choice(targets), chance.choice(targets), chance.choice(targets)
        if chance.random() < 0.5:
            target = reader
        method, path, form = chance.choice(requests_for(target))
        header = chance.choice([{"Cookie": f"tbhub_read={reader.token}"}, {"Authorization": f"Bearer {reader.token}"}])
        if "/api/" in path:
            header = {"Authorization": f"Bearer {reader.token}"}
        spoof = {"Tensorboard-Experiment-Id": other.experiment, "X-Forwarded-Host": other.experiment}
        options = {} if form is None else {"fields": form, "encode_multipart": chance.random() < 0.5}
        answer = pool.request(method, live_service.url + path, headers=header | spoof, **options)
        may_read = reader is target or (reader.tenant == target.tenant and (reader.tenant, reader.token) in owners)
        found = {mark for mark in marks if mark in answer.data}
        seen = (answer.status, found, path, answer.data[:300])
        if not may_read:
            assert answer.status in {401, 404}, seen
            assert not found, seen
            return 0
        assert answer.status == httpx2.codes.OK, seen
        assert found == (set() if any(name in path for name in MARKLESS) else {target.mark.encode()}), seen
        return 1

    with ThreadPoolExecutor(THREADS) as threads:
        served = sum(threads.map(ask, range(REQUESTS)))
    assert REQUESTS / 3 < served < REQUESTS * 2 / 3
    assert live_service.process.poll() is None


def test_a_blob_key_opens_nothing_below_another_experiment(live_service, targets):
    """Not even for one who may read both."""
    pool = urllib3.PoolManager(retries=False)
    mine, also_mine = (target for target in targets if target.tenant == 0)
    owner = {"Authorization": f"Bearer {mine.token}"}
    for path in (
        "data/blob/{}",
        "data/plugin/images/individualImage?blob_key={}",
        "data/plugin/timeseries/imageData?imageId={}",
    ):
        for base, status in ((mine, 404), (also_mine, 200)):
            url = f"{live_service.url}/experiment/{base.experiment}/{path.format(also_mine.blob)}"
            assert pool.request("GET", url, headers=owner).status == status
