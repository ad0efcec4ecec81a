"""`/metrics` counts what was done, with labels free of tenant data, and is open to the operator
alone.
"""

from __future__ import annotations

import gzip
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from starlette.testclient import TestClient

from support.batches import PROTOBUF, ApiClient, batch, images, scalars, segment, stream, texts
from support.waiting import wait_until
from tbservice import limits
from tbservice.api.http.metrics_exposition import expose
from tbservice.errors import ObjectMissing, Unavailable
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.objects.object_store import ObjectStore
from tbservice.server.app import create_app
from tbservice.settings import Settings

BATCHES = "/api/v1/experiments/{experiment_id}/batches"
LABELS = {
    "result",
    "data_class",
    "part",
    "cause",
    "level",
    "route",
    "method",
    "status",
    "code",
    "operation",
    "share",
    "group",
    "node",
    "recorded",
    "outcome",
    "le",
}
WAIT_SECONDS_MAX = 30


def local_client(settings):
    """Return a client with a loopback address, of an application of its own."""
    application = create_app(settings)
    return TestClient(application, base_url=f"http://{LOOPBACK}", client=(LOOPBACK, 50_000))


@pytest.fixture
def alone(settings):
    """The client of an application for this test, which counts what is done in the background.

    These tests are the first ones, before there is an application of the module.
    """
    with local_client(settings) as client:
        yield client


@pytest.fixture(scope="module")
def here(shared_settings):
    """The client of the module's application."""
    with local_client(shared_settings) as client:
        yield client


@pytest.fixture
def api(here, owner_token):
    return ApiClient(here, owner_token)


def figures():
    """Return every sample, {(name, label values in the order of label names): value}; the process
    counts all tests so far.
    """
    content, _ = expose("")
    return {
        (
            sample.name.removeprefix("tbhub_"),
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def moved(before, *, within=""):
    """Return what has changed since `before`, of the metrics whose name begins with `within`."""
    now = figures()
    return {
        key: value - before.get(key, 0)
        for key, value in now.items()
        if key[0].startswith(within) and value != before.get(key, 0)
    }


@pytest.mark.own_database
def test_metrics_count_compaction_and_its_backlog(alone, owner_token):
    api = ApiClient(alone, owner_token)
    experiment = api.new_experiment()
    before = figures()
    writes, points = limits.WRITE_BUFFER_ROWS_MAX, limits.WRITE_BUFFER_ROW_POINTS_MIN
    for number in range(writes):
        steps = range(points * number, points * (number + 1))
        api.write(experiment, segment(stream(), number, number + 1, scalars("loss", steps)))
    wait_until(lambda: moved(before, within="merged_series"))
    changed = moved(before, within="merge")
    assert changed["merged_runs_total", "due"] >= 1
    assert changed["merged_series_total",] == changed["merge_seconds_count",] == 1
    assert (
        changed["merged_points_total",]
        == changed["merge_written_points_total", "open"]
        == points * writes
    )
    assert changed["merge_written_blocks_total", "open"] == 1
    assert "merge_failures_total" not in changed
    now = figures()
    assert (now["merge_due_runs",], now["merge_resting_runs",]) == (0, 1)


@pytest.mark.own_database
def test_metrics_count_failed_compaction_and_uploads_work(alone, owner_token, rename_table):
    api = ApiClient(alone, owner_token)
    experiment = api.new_experiment()
    before = figures()
    rename_table("scalar_blocks", "away")
    points = limits.WRITE_BUFFER_ROW_POINTS_MIN
    for number in range(limits.WRITE_BUFFER_ROWS_MAX):
        steps = range(points * number, points * (number + 1))
        api.write(experiment, segment(stream(), number, number + 1, scalars("loss", steps)))
    wait_until(lambda: ("merge_failures_total",) in moved(before))
    assert not moved(before, within="merged_series")
    assert not moved(before, within="merge_seconds")


@pytest.mark.own_database
def test_connections_in_use_are_those_taken_at_moment(alone, database, settings):
    alone.get("/readyz")
    using_connections = {"compactor", "compactor's search", "eraser"}  # from time to time
    alone.app.state.compactor.stop()
    alone.app.state.eraser.stop()
    wait_until(
        lambda: using_connections.isdisjoint(thread.name for thread in threading.enumerate())
    )
    before = figures()
    assert before["database_connections_max",] == settings.database_pool_size
    with database.transaction(), database.snapshot():
        assert moved(before, within="database_connections_in_use") == {
            ("database_connections_in_use",): 2
        }
    assert moved(before, within="database_conn") == {
        ("database_connection_wait_seconds_count",): 2,
        ("database_connection_wait_seconds_sum",): pytest.approx(1, abs=WAIT_SECONDS_MAX),
    }


def test_batch_moves_counters_by_what_it_brought_once(api):
    experiment = api.new_experiment()
    before = figures()
    first = segment(stream(), 0, 9, scalars("loss", [0, 1, 2]), texts("note", [0, 1], [b"a", b"b"]))
    second = segment(stream("other"), 0, 9, images("cat", [0, 1], [[b"one"], [b"two", b"three"]]))
    api.write(experiment, first, second)
    assert moved(before, within="batches") == {("batches_total", "committed"): 1}
    assert moved(before, within="segments") == {("segments_total", "committed"): 2}
    assert moved(before, within="points") == {
        ("points_total", "scalar"): 3,
        ("points_total", "tensor"): 2,
    }
    assert moved(before, within="blobs") == {("blobs_total",): 3}

    api.write(experiment, first, second)
    api.write(experiment, second, segment(stream(), 9, 20, scalars("loss", [3])))
    assert moved(before, within="batches") == {
        ("batches_total", "committed"): 2,
        ("batches_total", "repeated"): 1,
    }
    assert moved(before, within="segments") == {
        ("segments_total", "committed"): 3,
        ("segments_total", "repeated"): 3,
    }
    assert moved(before, within="points")["points_total", "scalar"] == 4


def test_bytes_are_counted_as_received_and_as_decompressed(api):
    experiment = api.new_experiment()
    before = figures()
    content = batch(segment(stream(), 0, 9, scalars("loss", list(range(1000)))))
    body = gzip.compress(content)
    assert len(body) < len(content)
    path = f"/experiments/{experiment}/batches"
    api.request(
        "POST", path, content=body, headers=PROTOBUF | {"Content-Encoding": "gzip"}
    ).raise_for_status()
    assert moved(before, within="batch_body_bytes") == {("batch_body_bytes_total",): len(body)}
    assert moved(before, within="batch_content_bytes") == {
        ("batch_content_bytes_total",): len(content)
    }


def test_each_part_of_batch_is_timed(api):
    experiment = api.new_experiment()
    before = figures()
    begin = time.perf_counter()
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", [0])))
    elapsed = time.perf_counter() - begin
    parts = moved(before, within="batch_part_seconds_count")
    assert parts == {
        ("batch_part_seconds_count", part): 1
        for part in ("body", "turn", "decode", "blobs", "transaction")
    }
    assert 0 < sum(moved(before, within="batch_part_seconds_sum").values()) < elapsed


def test_metrics_count_refused_batches_by_code(api):
    experiment = api.new_experiment()
    before = figures()
    assert api.send(experiment, segment(stream(), 5, 9, scalars("loss", [0]))).status_code == 409
    assert (
        api.send(
            experiment, segment(stream(), 0, 9, scalars("loss", [0], summary_metadata=b""))
        ).status_code
        == 409
    )
    assert ApiClient(api.client, None).send(experiment).status_code == 401
    path = f"/experiments/{experiment}/batches"
    assert api.request("POST", path, content=b"nonsense", headers=PROTOBUF).status_code == 400
    codes = ("cursor_conflict", "metadata_missing", "unauthenticated", "malformed")
    assert moved(before, within="http_errors") == {
        ("http_errors_total", code, BATCHES): 1 for code in codes
    }
    assert not moved(before, within="batches")
    assert not moved(before, within="points")
    requests = moved(before, within="http_requests")
    assert requests["http_requests_total", "POST", BATCHES, "409"] == 2


def test_metrics_label_routes_without_tenant_data(here, api, owner_token):
    experiment = api.new_experiment(name="precious")
    api.write(experiment, segment(stream("secret run"), 0, 9, scalars("secret tag", [0])))
    before = figures()
    api.get(experiment, "runs")
    for path in (
        "",
        "data/runs",
        "defaultExperimentId/data/environment",
        "data/plugin/scalars/tags",
        "x.js",
    ):
        address = f"/experiment/{experiment}/{path.replace('default', 'experiment/default')}"
        here.get(address, headers=api.headers)
    here.get(f"/nowhere/{experiment}?token={owner_token}")
    here.request("BREW", f"/api/v1/experiments/{experiment}/runs")
    here.get("/healthz", headers={"Host": "no host"})
    page = "/experiment/{experiment_id}"
    assert moved(before, within="http_requests") == {
        ("http_requests_total", "GET", "/api/v1/experiments/{experiment_id}/runs", "200"): 1,
        ("http_requests_total", "other", "/api/v1/experiments/{experiment_id}/runs", "405"): 1,
        ("http_requests_total", "GET", f"{page}/", "200"): 1,
        ("http_requests_total", "GET", f"{page}/data/runs", "200"): 1,
        ("http_requests_total", "GET", f"{page}/data/environment", "200"): 1,
        ("http_requests_total", "GET", f"{page}/data/{{path:path}}", "200"): 1,
        ("http_requests_total", "GET", f"{page}/{{path:path}}", "404"): 1,
        ("http_requests_total", "GET", "unmatched", "404"): 1,
        ("http_requests_total", "GET", "/healthz", "204"): 1,
    }
    counted = moved(before, within="http_request_seconds_count")
    assert counted["http_request_seconds_count", "GET", f"{page}/data/runs"] == 1
    content = here.get("/metrics").text
    assert not [
        word
        for word in (experiment, owner_token, "secret", "precious", "nowhere")
        if word in content
    ]
    labels = {
        name
        for family in text_string_to_metric_families(content)
        for sample in family.samples
        for name in sample.labels
    }
    assert labels <= LABELS


@pytest.mark.own_database
def test_failure_of_server_is_counted_as_one(settings, owner_token, rename_table):
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        rename_table("experiments", "away")
        before = figures()
        assert ApiClient(client, owner_token).request("GET", "/experiments").status_code == 500
    assert moved(before, within="http_errors") == {
        ("http_errors_total", "internal", "/api/v1/experiments"): 1
    }
    requests = moved(before, within="http_requests")
    assert requests == {("http_requests_total", "GET", "/api/v1/experiments", "500"): 1}


@pytest.mark.own_database
def test_calls_to_object_store_are_counted_by_how_they_ended(settings):
    before = figures()
    store = ObjectStore(settings)
    store.ensure_bucket()
    store.put("key", b"content")
    assert b"".join(store.read("key", 0, 7)) == b"content"
    with pytest.raises(ObjectMissing):
        store.read("no such key", 0, 7)
    store.close()
    away = f"http://{LOOPBACK}:{choose_ports(['objects'], {})['objects']}"
    lost = ObjectStore(settings.model_copy(update={"s3_endpoint": away}))
    with pytest.raises(Unavailable):
        lost.check()
    lost.close()
    assert moved(before, within="s3_calls") == {
        ("s3_calls_total", "HeadBucket", "refused"): 1,
        ("s3_calls_total", "CreateBucket", "done"): 1,
        ("s3_calls_total", "PutObject", "done"): 1,
        ("s3_calls_total", "GetObject", "done"): 1,
        ("s3_calls_total", "GetObject", "refused"): 1,
        ("s3_calls_total", "HeadBucket", "failed"): 1,
    }


def test_scrape_tells_of_process_and_says_what_each_figure_is(here):
    answer = here.get("/metrics", headers={"Accept": "text/plain"})
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert {"process_cpu_seconds", "process_resident_memory_bytes"} <= families.keys()
    assert not [name for name, family in families.items() if not family.documentation]
    assert not [name for name in families if not name.startswith(("tbhub_", "process_"))]
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    assert here.get("/metrics", headers=asked).text.endswith("# EOF\n")


@pytest.fixture(params=[None, ""], ids=["unset", "empty"])
def unguarded(request):
    """An application without a metrics token; it is not started, and connects to nothing."""
    token = request.param if request.param is None else SecretStr(request.param)
    return create_app(Settings(database_url=SecretStr("postgresql://"), metrics_token=token))


def test_without_token_of_its_own_this_machine_may_look(unguarded):
    for client in (LOOPBACK, "::1", f"::ffff:{LOOPBACK}"):
        for host in (LOOPBACK, "localhost", "[::1]", f"{LOOPBACK}:6060"):
            answer = TestClient(unguarded, client=(client, 1)).get(
                "/metrics", headers={"Host": host}
            )
            assert answer.status_code == 200, (client, host)


def test_metrics_address_is_hidden_without_token(unguarded):
    for client, headers in (
        ("10.1.2.3", {}),
        ("testclient", {}),
        (LOOPBACK, {"X-Forwarded-For": LOOPBACK}),
        (LOOPBACK, {"X-Forwarded-For": ""}),
        (LOOPBACK, {"X-Forwarded-Proto": "http"}),
        (LOOPBACK, {"X-Real-IP": LOOPBACK}),
        (LOOPBACK, {"Forwarded": "for=127.0.0.1"}),
        (LOOPBACK, {"Via": "1.1 proxy"}),
        (LOOPBACK, {"Host": "tbhub.example.org"}),
        (LOOPBACK, {"Host": "127.0.0.1.example.org"}),
        (LOOPBACK, {"Host": ""}),
    ):
        outside = TestClient(unguarded, base_url=f"http://{LOOPBACK}", client=(client, 1))
        answer = outside.get("/metrics", headers=headers | {"Authorization": "Bearer "})
        assert answer.status_code == 404, (client, headers)
        assert answer.json() == outside.get("/nowhere").json()
