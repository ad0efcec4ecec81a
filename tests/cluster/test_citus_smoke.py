"""A batch goes to a cluster and is read from it: the little of it that `make test` tries."""

from __future__ import annotations

import pytest

from support import citus
from support.batches import ApiClient, scalars, segment, stream
from support.servers import new_owner
from tbservice.store.pg import migrate


def test_batch_is_written_to_cluster_and_read_back(servers, request, run_application):
    if not citus.TOOLS or request.config.getoption("citus"):
        pytest.skip("needs CITUS_TOOLS; with --citus, all tests are on a cluster")
    with citus.running_cluster(citus.PORT + 10, workers=1) as cluster:
        with cluster.connect(citus.OWNER) as db:
            db.execute(f"ALTER DATABASE {citus.OWNER} SET citus.shard_count = 1")
        migrate.upgrade(cluster.url(role=citus.OWNER))
        url = cluster.url()
        with servers.settings(url) as settings, run_application(settings) as client:
            api = ApiClient(client, new_owner(url))
            experiment = api.new_experiment(name="smoke")
            for start in (0, 100):
                api.write(experiment, segment(stream(), start, start + 100, scalars("a", [start])))
            assert api.get(experiment, "scalars/data")["train"]["a"]["steps"] == [0, 100]
