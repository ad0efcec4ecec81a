"""Eight tenants read and compare experiments at once on a real server with many threads, by
tokens and by browser sessions of their people: no answer has another tenant's data.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlencode

import httpx2
import pytest
import urllib3

from support.batches import images, scalars, segment, stream, texts
from support.event_files import PNG
from support.people import cookie_of, new_member, new_session, sign_in
from support.servers import live_api, new_workspace
from tbservice.auth import people
from tbservice.db.database import Database
from tbservice.types.people import Role

TENANTS = 8
PAIRS_EVERY = 2
"""Each so many tenants, one has two experiments; the others have one."""
THREADS = 16
REQUESTS = 250


@dataclass(frozen=True)
class Target:
    """An experiment, whose every name and value holds its mark, and its owner's token."""

    experiment: str
    mark: str
    blob: str
    tenant: int
    token: str


@dataclass(frozen=True)
class Reader:
    """A secret, and what it may read: all of these tenants, or one experiment alone."""

    secret: str
    tenants: frozenset[int]
    experiment: str | None = None
    is_session: bool = False

    def may_read(self, target):
        return target.tenant in self.tenants and self.experiment in {None, target.experiment}


@dataclass(frozen=True)
class Crowd:
    """All experiments and all who read."""

    targets: list[Target]
    readers: list[Reader]


def make_tenant(live_service, tenant):
    """Create a workspace; return its id, its experiments, which differ in their marks only, and its
    token to read one of them.
    """
    workspace = new_workspace(live_service.database_url)
    targets = []
    with live_api(live_service.url, workspace.owner_token) as api:
        for number in range(1 if tenant % PAIRS_EVERY else 2):
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
            targets.append(Target(experiment, mark, blob, tenant, workspace.owner_token))
        read_token = api.new_token(targets[-1].experiment, "read")
    return workspace.workspace_id, targets, read_token


@pytest.fixture(scope="module")
def crowd(live_service):
    """Each tenant is read by an owner token, a token to read one experiment, the session of a
    viewer, and that of a person who is a member of the next workspace as well.
    """
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda tenant: make_tenant(live_service, tenant), range(TENANTS)))
    database = Database(live_service.database_url, 2)
    readers = []
    for tenant, (workspace_id, targets, read_token) in enumerate(made):
        following = (tenant + 1) % TENANTS
        readers.append(Reader(targets[0].token, frozenset({tenant})))
        readers.append(Reader(read_token, frozenset({tenant}), targets[-1].experiment))
        secret = new_session(database, workspace_id, Role.VIEWER)
        readers.append(Reader(secret, frozenset({tenant}), is_session=True))
        person = new_member(database, workspace_id, Role.EDITOR)
        with database.transaction() as db:
            people.add_member(db, made[following][0], person.user_id, Role.VIEWER)
        secret = sign_in(database, person)
        readers.append(Reader(secret, frozenset({tenant, following}), is_session=True))
    database.close()
    return Crowd([target for _, targets, _ in made for target in targets], readers)


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
    """Choose mostly one experiment, one that the reader may read or any; otherwise two that they
    may read, if there are, or any two.
    """
    own = [target for target in targets if reader.may_read(target)]
    return chance.choices(
        [
            (chance.choice(own),),
            (chance.choice(targets),),
            chance.sample(own, min(2, len(own))),
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


def credentials_of(reader, path, shown):
    """Return the headers of a request by this reader: a token in its cookie or header."""
    if reader.is_session:
        return cookie_of(reader.secret)
    if "/api/" in path or len(path) % 2:
        return {"Authorization": f"Bearer {reader.secret}"}
    return {"Cookie": f"tbhub_read={'.'.join([reader.secret] * len(shown))}"}


def test_another_tenants_data_is_never_served(live_service, crowd):
    """Every answer is searched for the marks of all experiments, and must contain those of the
    experiments shown, if the reader may read them, and no others.
    """
    pool = urllib3.PoolManager(maxsize=THREADS, retries=False)
    mark = re.compile(rb"mark\d+x\dq")

    def ask(seed):
        chance = random.Random(seed)  # noqa: S311 - a test's order, no secret
        reader, other = chance.choice(crowd.readers), chance.choice(crowd.targets)
        shown = choose_shown(chance, reader, crowd.targets)
        pictured = chance.choice(shown)
        method, path, form = chance.choice(requests_for(shown, pictured))
        spoof = {
            "Tensorboard-Experiment-Id": other.experiment,
            "X-Forwarded-Host": other.experiment,
        }
        headers = credentials_of(reader, path, shown) | spoof
        options = (
            {} if form is None else {"fields": form, "encode_multipart": chance.random() < 0.5}
        )
        answer = pool.request(method, live_service.url + path, headers=headers, **options)
        may_read = all(map(reader.may_read, shown)) and not (reader.is_session and "/api/" in path)
        marks_seen = set(mark.findall(answer.data))
        seen = (answer.status, marks_seen, path, answer.data[:300])
        if not may_read:
            assert answer.status in {401, 404}, seen
            assert not marks_seen, seen
            return 0, False
        assert answer.status == httpx2.codes.OK, seen
        assert marks_seen == expected_marks(path, shown, pictured), seen
        return len(shown), reader.is_session

    with ThreadPoolExecutor(THREADS) as threads:
        served = Counter(threads.map(ask, range(REQUESTS)))
    by_session = served[1, True] + served[2, True]
    by_token = served[1, False] + served[2, False]
    assert min(by_session, by_token, served[0, False]) > REQUESTS / 6
    assert min(served[2, False], served[2, True]) > 0
    assert live_service.process.poll() is None


def test_blob_key_opens_nothing_below_another_experiment(live_service, crowd):
    """Not even for one who may read both."""
    pool = urllib3.PoolManager(retries=False)
    mine, also_mine = (target for target in crowd.targets if target.tenant == 0)
    owner = {"Authorization": f"Bearer {mine.token}"}
    for path in (
        "data/blob/{}",
        "data/plugin/images/individualImage?blob_key={}",
        "data/plugin/timeseries/imageData?imageId={}",
    ):
        for base, status in ((mine, 404), (also_mine, 200)):
            url = f"{live_service.url}/experiment/{base.experiment}/{path.format(also_mine.blob)}"
            assert pool.request("GET", url, headers=owner).status == status
