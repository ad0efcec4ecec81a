"""Full reads from a live service: slow clients, clients that leave, and answers that break midway."""

from __future__ import annotations

from contextlib import ExitStack

import httpx2
import numpy as np
import pytest

from support.batches import ApiClient, packed_scalars, scalars, segment, stream
from support.servers import database_name
from support.uploading import wait_until
from tbservice import limits
from tbservice.admission.worker_shares import CALLER_FULL_SCAN_STREAMS_MAX

SERIES, POINTS = 60, 10_000


@pytest.fixture
def experiment_id(reader, uploader):
    """More points than one chunk, and more bytes than socket buffers hold."""
    api = ApiClient(reader.http, uploader.token)
    experiment_id = api.new_experiment()
    rng = np.random.default_rng(5)
    for number in range(0, SERIES, 10):
        series = [
            packed_scalars(
                f"tag{tag}",
                np.arange(POINTS),
                rng.random(POINTS),
                1.7e9 + np.cumsum(rng.random(POINTS)),
            )
            for tag in range(number, number + 10)
        ]
        api.write(experiment_id, segment(stream("run", f"file{number}"), 0, 1, *series))
    assert limits.SCAN_CHUNK_POINTS < SERIES * POINTS / 2
    return experiment_id


def everything(reader, experiment_id, **query):
    path = f"/api/v1/experiments/{experiment_id}/scalars/data"
    return reader.http.stream("GET", path, params={"sampling": "all", "format": "csv", **query})


@pytest.fixture
def superuser(servers, live_service):
    database = database_name(live_service.database_url)
    with servers.instance.postgres.connect_as_superuser(database) as connection:
        yield connection


def test_stream_of_slow_clients_holds_no_connection(reader, experiment_id, servers, live_service):
    def in_transactions():
        idle = """
            SELECT pid FROM pg_stat_activity WHERE datname = current_database()
            AND usename <> 'postgres' AND state = 'idle in transaction'
        """
        return servers.execute_on_nodes(live_service.database_url, idle)

    with ExitStack() as slow:
        for _ in range(CALLER_FULL_SCAN_STREAMS_MAX):
            assert slow.enter_context(everything(reader, experiment_id)).status_code == 200
        with everything(reader, experiment_id) as refused:
            assert (refused.status_code, refused.read() and refused.json()["code"]) == (
                429,
                "too_many_requests",
            )
            assert int(refused.headers["Retry-After"]) > 0
        wait_until(lambda: not in_transactions())
        assert len(reader.get(experiment_id, "scalars/data", downsample=1)["run"]) == SERIES

    def is_free():
        with everything(reader, experiment_id, tag="tag1") as answer:
            return answer.status_code == 200 and answer.read().count(b"\n") == POINTS + 1

    wait_until(is_free)


@pytest.fixture
def older_id(reader, uploader):
    """An experiment created before all others of its workspace."""
    api = ApiClient(reader.http, uploader.token)
    return api.new_experiment(scalars("loss", [1]))


def test_stream_broken_midway_never_looks_complete(
    reader, older_id, experiment_id, superuser, uploader, tmp_path
):
    damaged = 0
    for table in ("scalar_tail", "scalar_blocks"):
        damage = f"""
            UPDATE {table} SET data = substr(data, 1, 100)
            WHERE experiment_id = %(experiment_id)s AND series_id = (
                SELECT max(series_id) FROM time_series WHERE experiment_id = %(experiment_id)s)
        """  # noqa: S608 - constants
        damaged += superuser.execute(damage, {"experiment_id": experiment_id}).rowcount
    assert damaged
    for format_ in ("csv", "parquet", "json"):
        with everything(reader, experiment_id, format=format_) as answer:
            assert answer.status_code == 200
            with pytest.raises(httpx2.RemoteProtocolError):
                answer.read()
    for format_ in ("csv", "parquet"):
        directory = tmp_path / format_
        ended = uploader.run(
            "export", "--experiment", experiment_id, "--format", format_, "--output", directory
        )
        assert ended.code == 75, ended.err
        assert "in the middle of an answer; trying again" in ended.err
        assert [path.name for path in directory.rglob("*part*")] == []
    ended = uploader.run("export", "--all", "--format", "csv", "--output", tmp_path / "all")
    assert (ended.code, "continuing with the others" in ended.err) == (75, True)
    parts = tmp_path.joinpath("all").rglob("*part*")
    assert {path.parent.parent.name for path in parts} == {older_id}
