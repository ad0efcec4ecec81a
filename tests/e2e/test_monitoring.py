"""Alert rules and dashboard: a real Prometheus scrapes a real service with them."""

import json
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import yaml

from support.programs import find_program
from support.servers import http_client, live_service
from support.waiting import wait_until
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.metrics import REGISTRY
from tbservice.server.maintenance import format_metrics

pytestmark = pytest.mark.own_database

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "tbhub.json").read_text())
ON_CALL = (ROOT / "docs" / "on-call.md").read_text()


def alerts():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def dashboard_expressions():
    return [
        target["expr"].replace("$__rate_interval", "1m")
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    ]


def metrics_of(expression):
    return set(re.findall(r"\b(?:tbhub|process)_\w+", expression))


@contextmanager
def prometheus(directory, target):
    """Run Prometheus with the alert rules and this target; yield a client of its API."""
    port = choose_ports(["prometheus"], {})["prometheus"]
    scrape = {
        "job_name": "tbhub",
        "authorization": {"credentials": "operator"},
        "static_configs": [{"targets": [target]}],
    }
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [scrape],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        find_program("prometheus"),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address={LOOPBACK}:{port}",
    ]
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
        http_client(f"http://{LOOPBACK}:{port}/api/v1") as client,
    ):
        try:
            wait_until(lambda: is_ready(client))
            yield client
        finally:
            process.terminate()


def is_ready(client):
    try:
        return client.get("/status/runtimeinfo").is_success
    except httpx2.TransportError:
        return False


def query(client, expression):
    answer = client.get("/query", params={"query": expression}).json()
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def test_alerts_fire_and_are_silent_as_their_tests_say():
    rules = ROOT / "deploy" / "prometheus" / "alerts_test.yml"
    subprocess.run(
        [find_program("promtool"), "test", "rules", rules], check=True, capture_output=True
    )
    tested = rules.read_text()
    for name in alerts():
        assert len(re.findall(rf"alertname: {name}\b", tested)) >= 2, name


def test_every_alert_has_its_section_on_call():
    headings = re.findall(r"^## (.+)$", ON_CALL, re.MULTILINE)
    anchors = {re.sub(r"[^\w-]", "", text.lower().replace(" ", "-")) for text in headings}
    for name, rule in alerts().items():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (page, anchor in anchors) == ("docs/on-call.md", True), name
        assert f"`{name}`" in ON_CALL


def test_prometheus_finds_every_metric_of_alerts_and_panels(settings, tmp_path):
    more = {"TBHUB_METRICS_TOKEN": "operator"}
    with (
        live_service(settings, tmp_path / "service.log", **more) as live,
        prometheus(tmp_path, live.url.removeprefix("http://")) as client,
    ):
        wait_until(lambda: query(client, "up == 1"))
        described = client.get("/metadata").json()["data"].keys()
        # A metric has no series before its first event where its labels are not known before.
        described |= {metric.name for metric in REGISTRY.collect()}
        # Those of backups come from node_exporter, which passes on what a backup writes.
        described |= set(re.findall(r"# TYPE (\w+)", format_metrics(0, 0)))
        expressions = [*dashboard_expressions(), *(rule["expr"] for rule in alerts().values())]
        named = set().union(*map(metrics_of, expressions))
        assert {re.sub("_(bucket|sum|count|total)$", "", name) for name in named} <= described
        for expression in dashboard_expressions():
            query(client, expression)
        rules = wait_until(
            lambda: [
                rule
                for group in client.get("/rules").json()["data"]["groups"]
                for rule in group["rules"]
                if rule["health"] != "unknown"
            ]
        )
    assert {rule["name"] for rule in rules} == alerts().keys()
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule for rule in rules if rule["state"] == "firing"]
