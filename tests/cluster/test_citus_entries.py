"""The service enters a cluster by a worker, by any of three nodes, and through PgBouncer in transaction
mode.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from support.batches import ApiClient, images, packed_scalars, scalars, segment, stream, texts
from support.pgbouncer import pgbouncer
from support.servers import database_name, new_owner
from support.share_links import make_link, reader_of
from tbservice.db.database import Database
from tbservice.db.pipeline import get_driver_connection
from tbservice.integrity.check import CheckOptions
from tbservice.server.maintenance import check_service
from tbservice.throttle import Progress, Throttle

pytestmark = [pytest.mark.cluster, pytest.mark.own_database]

EXPERIMENTS = 6
RUNS = ("first", "second", "third")


def use_service(servers, run_application, url, token):
    """Upload, read, list and share experiments through an application that enters by a URL."""
    with servers.settings(url) as settings, run_application(settings) as client:
        api = ApiClient(client, token)
        names = [f"experiment {number}" for number in range(EXPERIMENTS)]
        for name in names:
            experiment = api.new_experiment(name=name)
            for run in RUNS:
                more = texts("note", [1], [b"a"]), images("image", [1], [[b"png"]])
                api.write(experiment, segment(stream(run), 0, 9, scalars("loss", [1, 2]), *more))
                api.write(experiment, segment(stream(run), 9, 18, scalars("loss", [3])))
            api.write(experiment, segment(stream("packed"), 0, 9, packed_scalars("p", range(2000))))
            assert [run["run"] for run in api.get(experiment, "runs")["runs"]] == [*RUNS, "packed"]
            read = api.get(experiment, "scalars/data", sampling="all")
            assert [read[run]["loss"]["steps"] for run in RUNS] == [[1, 2, 3]] * 3
            assert len(read["packed"]["p"]["steps"]) == 2000
            reader = reader_of(client, make_link(api, experiment, runs="second"))
            assert list(reader.get(experiment, "tensors/data")) == ["second"]
        listed = api.experiments()
        numbered = [each["name"] for each in listed]
        # Each node numbers what was created through it.
        assert (sorted(numbered) if "," in url else numbered[::-1]) == names
        answer = api.request("DELETE", f"/experiments/{experiment}")
        assert answer.status_code == 204
        everything = CheckOptions(reads_content=True), Throttle(None), Progress(None)
        findings, _ = check_service(settings, *everything, lambda _damage: None)
        assert (findings.damage, findings.looked.experiments) == ([], EXPERIMENTS)


def test_service_enters_by_worker(servers, cluster, database_url, run_application):
    url = cluster.url(database_name(database_url), node=1)
    use_service(servers, run_application, url, new_owner(url))


def test_service_enters_by_any_of_three_nodes(servers, cluster, database_url, run_application):
    address = ",".join(f"127.0.0.1:{port}" for port in cluster.ports)
    url = database_url.replace(f"127.0.0.1:{cluster.port}", address)
    url += "&load_balance_hosts=random"
    with closing(Database(url, 30)) as database, ExitStack() as stack:
        opened = [stack.enter_context(database.transaction()) for _ in range(30)]
        entered = {get_driver_connection(db).info.port for db in opened}
    assert entered == set(cluster.ports)
    use_service(servers, run_application, url, new_owner(url))


def test_service_enters_through_pgbouncer(servers, database_url, run_application):
    with pgbouncer(database_url) as url:
        use_service(servers, run_application, url, new_owner(url))
    used = "SELECT count(*) FROM tokens WHERE last_used_at IS NOT NULL"
    (first, *others) = servers.execute_on_nodes(database_url, used)
    assert first[0] > EXPERIMENTS  # of links, and the owner's
    assert others == [first] * len(others)  # every node has the same rows
