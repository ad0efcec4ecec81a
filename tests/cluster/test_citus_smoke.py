"""A batch goes to a cluster and is read from it: the little of it that `make test` tries."""

from __future__ import annotations

import pytest

from support import citus
from support.batches import ApiClient, scalars, segment, stream
from support.servers import new_owner
from tbservice.db import migrate


@pytest.mark.cluster_smoke
def test_batch_is_written_to_cluster_and_read_back(servers, run_application):
    with citus.running_cluster(citus.PORT + 10, workers=1) as cluster:
        migrate.upgrade(cluster.url_for_migration(citus.OWNER, 1))
        url = cluster.url()
        with servers.settings(url) as settings, run_application(settings) as client:
            api = ApiClient(client, new_owner(url))
            experiment = api.new_experiment(name="smoke")
            for start in (0, 100):
                api.write(experiment, segment(stream(), start, start + 100, scalars("a", [start])))
            assert api.get(experiment, "scalars/data")["train"]["a"]["steps"] == [0, 100]
