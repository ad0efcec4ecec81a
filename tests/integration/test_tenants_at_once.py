"""Many tenants read and compare experiments at once on a real server with many threads: no answer
has another tenant's data.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx2
import pytest
import urllib3

from support.batches import ApiClient, images, scalars, segment, stream, texts
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
    """Return experiments that differ in their marks only; their readers have owner tokens and read
    tokens in turns.
    """
    paths = []
    with httpx2.Client(base_url=live_service.url, trust_env=False, timeout=60) as client:
        for tenant in range(TENANTS):
            api = ApiClient(client, live_service.new_owner())
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
                token = (
                    api.new_token(experiment, "read")
                    if number
                    else api.headers["Authorization"].split()[1]
                )
                paths.append(Target(experiment, mark, blob, tenant, token))
    return paths


def page_of(shown):
    """Return the address of an experiment's page, or of a comparison."""
    if len(shown) == 1:
        return f"/experiment/{shown[0].experiment}"
    return "/compare/" + ",".join(
        f"part{number}:{target.experiment}" for number, target in enumerate(shown)
    )


def requests_for(shown, pictured):
    """Yield (method, path, form) of every kind of address that shows these experiments; none
    contains a mark.

    Where an address names a blob, it is that of `pictured`.
    """
    card = {"requests": json.dumps([{"plugin": "scalars", "tag": "loss"}])}
    base = page_of(shown)
    sessions = json.dumps({"allowedStatuses": [0], "sliceSize": 9})
    below_page = (
        ("POST", f"{base}/data/plugin/timeseries/timeSeries", card),
        ("POST", f"{base}/experiment/defaultExperimentId/data/plugin/timeseries/timeSeries", card),
        ("GET", f"{base}/data/plugin/timeseries/tags", None),
        ("GET", f"{base}/data/plugin/scalars/tags", None),
        ("GET", f"{base}/data/plugin/text/tags", None),
        ("GET", f"{base}/data/plugin/images/tags", None),
        ("GET", f"{base}/data/runs", None),
        ("GET", f"{base}/data/environment", None),
        ("GET", f"{base}/data/plugins_listing", None),
        (
            "GET",
            f"{base}/data/plugin/hparams/session_groups?{urlencode({'request': sessions})}",
            None,
        ),
        ("GET", f"{base}/data/blob/{pictured.blob}", None),
        ("GET", f"{base}/data/plugin/timeseries/imageData?imageId={pictured.blob}", None),
    )
    if len(shown) > 1:
        return below_page
    return (
        *below_page,
        ("GET", f"/api/v1/experiments/{shown[0].experiment}/scalars/data?downsample=5", None),
        ("GET", f"/api/v1/blobs/{pictured.blob}", None),
    )


def choose_shown(chance, reader, targets):
    """Choose mostly one experiment, the reader's own or any; otherwise two of the reader's tenant,
    or any two.
    """
    of_tenant = [target for target in targets if target.tenant == reader.tenant]
    return chance.choices(
        [
            (reader,),
            (chance.choice(targets),),
            chance.sample(of_tenant, 2),
            chance.sample(targets, 2),
        ],
        weights=[8, 8, 3, 1],
    )[0]


MARKLESS = ("plugins_listing", "session_groups")
OF_A_BLOB = ("/blob", "imageData")


def expected_marks(path, shown, pictured):
    """Return the marks in the answer to a reader who may read all that is shown."""
    if any(name in path for name in MARKLESS):
        return set()
    return {
        target.mark.encode()
        for target in ([pictured] if any(name in path for name in OF_A_BLOB) else shown)
    }


def test_another_tenants_data_is_never_served(live_service, targets):
    """Every answer is searched for the marks of all experiments, and must contain those of the
    experiments shown, if the reader may read them, and no others.
    """
    pool = urllib3.PoolManager(maxsize=THREADS, retries=False)
    marks = {target.mark.encode() for target in targets}
    owners = {(target.tenant, target.token) for target in targets if target.mark.endswith("x0q")}

    def ask(seed):
        chance = random.Random(seed)  # noqa: S311 - a test's order, no secret
        reader, other = chance.choice(targets), chance.choice(targets)
        shown = choose_shown(chance, reader, targets)
        pictured = chance.choice(shown)
        method, path, form = chance.choice(requests_for(shown, pictured))
        cookie = {"Cookie": f"tbhub_read={'.'.join([reader.token] * len(shown))}"}
        header = chance.choice([cookie, {"Authorization": f"Bearer {reader.token}"}])
        if "/api/" in path:
            header = {"Authorization": f"Bearer {reader.token}"}
        spoof = {
            "Tensorboard-Experiment-Id": other.experiment,
            "X-Forwarded-Host": other.experiment,
        }
        options = (
            {} if form is None else {"fields": form, "encode_multipart": chance.random() < 0.5}
        )
        answer = pool.request(method, live_service.url + path, headers=header | spoof, **options)
        is_owner = (reader.tenant, reader.token) in owners
        may_read = all(
            reader is each or (is_owner and reader.tenant == each.tenant) for each in shown
        )
        marks_seen = {mark for mark in marks if mark in answer.data}
        seen = (answer.status, marks_seen, path, answer.data[:300])
        if not may_read:
            assert answer.status in {401, 404}, seen
            assert not marks_seen, seen
            return 0
        assert answer.status == httpx2.codes.OK, seen
        assert marks_seen == expected_marks(path, shown, pictured), seen
        return len(shown)

    with ThreadPoolExecutor(THREADS) as threads:
        served = Counter(threads.map(ask, range(REQUESTS)))
    assert REQUESTS / 3 < served[1] + served[2] < REQUESTS * 2 / 3
    assert served[2] > REQUESTS / 30
    assert live_service.process.poll() is None


def test_blob_key_opens_nothing_below_another_experiment(live_service, targets):
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
