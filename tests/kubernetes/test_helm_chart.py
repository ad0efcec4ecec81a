"""The Helm chart: what Helm makes of it, against the schemas of Kubernetes and the service's settings."""

from __future__ import annotations

import json
import os
import sys

import pytest
import yaml

from support.source_code import ROOT
from support.subprocesses import run_to_end
from tbservice.settings import Settings

CHART = ROOT / "deploy" / "helm" / "tbhub"
OPERATIONS = ROOT / "docs" / "operations.md"
LEAST = {"secretName": "tbhub", "publicUrl": "https://tbhub.example.org"}
ALL = LEAST | {
    "contentUrl": "https://content.example.net",
    "image": {"repository": "registry/tbhub", "tag": "@sha256:" + 64 * "0", "pullSecrets": [{"name": "pull"}]},
    "migrateSecretName": "tbhub-owner",
    "settings": {"TBHUB_S3_BUCKET": "another", "TBHUB_S3_REGION": "eu-west-1"},
    "grpc": {"enabled": True, "port": 7061},
    "ingress": {"enabled": True, "className": "nginx", "annotations": {"a": "b"}, "tlsSecretName": "tls"},
    "trustedProxies": "10.244.0.0/16",
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}]},
    "prometheus": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceAccount": {"name": "", "annotations": {"role": "s3"}},
    "podAnnotations": {"c": "d"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}  # fmt: skip


def render(values):
    command = [
        os.environ["TBHUB_HELM"],
        str(ROOT / "tests" / "kubernetes" / "render.py"),
        str(CHART),
    ]
    done = run_to_end(command, input=json.dumps(values))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=[LEAST, ALL], ids=["least", "all"])
def rendered(request):
    return render(request.param)


@pytest.fixture(scope="module")
def full():
    return {resource["kind"]: resource for resource in render(ALL)["resources"]}


def container(resource):
    (only,) = resource["spec"]["template"]["spec"]["containers"]
    return only


def environment(resource):
    return {each["name"]: each.get("value") for each in container(resource)["env"]}


def test_helm_finds_nothing_to_complain_of(rendered):
    assert (rendered["refused"], rendered["faults"]) == ("", [])
    assert [text for text in rendered["lint"] if text != "icon is recommended"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"secretName": ""}, "secretName"),
        ({"publicUrl": "tbhub.example.org"}, "publicUrl"),
        ({"publicUrl": "https://tbhub.example.org/below"}, "publicUrl"),
        ({"settings": {"tbhub_host": "x"}}, "tbhub_host"),
        ({"settings": {"TBHUB_WORKERS": 2}}, "TBHUB_WORKERS"),
        ({"replicas": 0}, "replicas"),
        ({"replicaCount": 2}, "replicaCount"),
        ({"networkPolicy": {"form": []}}, "form"),
    ],
)
def test_wrong_value_is_refused_by_name(change, said):
    assert said in render(LEAST | change)["refused"]


@pytest.mark.parametrize("proxies", ["", "127.0.0.1"])
def test_ingress_needs_proxies_that_are_trusted(proxies):
    refused = render(ALL | {"trustedProxies": proxies})["refused"]
    assert "trustedProxies is required with an ingress: the network of its pods" in refused


@pytest.mark.parametrize(
    "change", [{}, {"ingress": {"enabled": False}, "service": {"type": "LoadBalancer"}}]
)
def test_way_in_needs_network_policy_or_none(change):
    refused = render(ALL | change | {"networkPolicy": {}})["refused"]
    assert "networkPolicy.from is required" in refused
    without = render(ALL | change | {"networkPolicy": {"enabled": False}})
    assert without["refused"] == ""
    assert "NetworkPolicy" not in [each["kind"] for each in without["resources"]]


def test_network_policy_is_for_own_namespace_by_default(full):
    rendered = render(LEAST)
    by_kind = {each["kind"]: each for each in rendered["resources"]}
    (rule,) = by_kind["NetworkPolicy"]["spec"]["ingress"]
    assert rule == {"from": [{"podSelector": {}}], "ports": [{"port": "http"}]}
    assert "Only pods of the namespace ml reach the service" in rendered["notes"]
    (rule,) = full["NetworkPolicy"]["spec"]["ingress"]
    assert rule["from"] == ALL["networkPolicy"]["from"]
    assert rule["ports"] == [{"port": "http"}, {"port": "grpc"}]


def test_secrets_are_refused_as_values():
    names = [
        f"TBHUB_{name.upper()}"
        for name, field in Settings.model_fields.items()
        if "SecretStr" in str(field.annotation)
    ]
    assert {"TBHUB_DATABASE_URL", "TBHUB_READ_DATABASE_URL", "TBHUB_METRICS_TOKEN"} <= set(names)
    refused = render(LEAST | {"settings": dict.fromkeys([*names, "TBHUB_OIDC_PROVIDERS"], "x")})[
        "refused"
    ]
    assert [name for name in [*names, "TBHUB_OIDC_PROVIDERS"] if name not in refused] == []


def test_secret_brings_the_databases_to_every_pod(full):
    """TBHUB_DATABASE_URL and TBHUB_READ_DATABASE_URL: no variable of the chart is in their way."""
    deployment = full["Deployment"]
    assert container(deployment)["envFrom"] == [{"secretRef": {"name": "tbhub"}}]
    assert not [name for name in environment(deployment) if name.endswith("DATABASE_URL")]


def test_notes_count_the_connections_to_postgres():
    sized = LEAST | {"replicas": 3, "settings": {"TBHUB_DATABASE_POOL_SIZE": "20"}}
    assert "permit 120 connections: 3 pods x 2 workers x 20;" in render(sized)["notes"]
    assert "permit 40 connections" in render(LEAST)["notes"]


def test_every_variable_is_a_setting(full):
    settings = {f"TBHUB_{name.upper()}" for name in Settings.model_fields}
    assert set(environment(full["Deployment"])) - {"POD_IP"} <= settings


def test_settings_reach_the_service(full):
    values = environment(full["Deployment"])
    assert values["TBHUB_PUBLIC_URL"] == "https://tbhub.example.org"
    assert json.loads(values["TBHUB_ALLOWED_HOSTS"]) == [
        "tbhub.example.org",
        "127.0.0.1",
        "$(POD_IP)",
    ]
    assert (values["TBHUB_S3_BUCKET"], values["TBHUB_GRPC_PORT"]) == ("another", "7061")


def test_service_accepts_the_environment(full):
    values = environment(full["Deployment"]) | {
        "POD_IP": "10.0.0.1",
        "TBHUB_DATABASE_URL": "postgresql://tbhub@postgres/tbhub",
    }
    code = "from tbservice.settings import Settings; print(Settings().workers)"
    done = run_to_end([sys.executable, "-c", code], env=os.environ | values)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_pods_have_no_privileges(full):
    for kind in ("Deployment", "Job"):
        pod = full[kind]["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # else a Service `tbhub` sets TBHUB_PORT
        assert pod["securityContext"]["runAsNonRoot"] is True
        security = container(full[kind])["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}


def test_migration_runs_before_the_pods_change(full):
    job = full["Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert container(job)["envFrom"] == [{"secretRef": {"name": "tbhub-owner"}}]
    assert container(job)["args"] == ["tbservice", "migrate"]


def test_long_migration_outlives_timeout_of_helm(full):
    """Helm waits for `--timeout`. Nothing else ends the Job, which `kubectl wait` finds by its label."""
    job = full["Job"]
    deleted = job["metadata"]["annotations"]["helm.sh/hook-delete-policy"].split(",")
    assert "hook-failed" not in deleted
    for spec in (job["spec"], job["spec"]["template"]["spec"]):
        assert "activeDeadlineSeconds" not in spec
    label = "app.kubernetes.io/component"
    assert f"--selector={label}={job['metadata']['labels'][label]}" in OPERATIONS.read_text()


def test_image_is_named_by_tag_or_digest(full):
    assert container(full["Deployment"])["image"] == "registry/tbhub@sha256:" + 64 * "0"
    by_tag = {each["kind"]: each for each in render(LEAST)["resources"]}
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert container(by_tag["Deployment"])["image"] == f"tbhub:{version}"


def test_one_pod_has_no_disruption_budget():
    kinds = [each["kind"] for each in render(LEAST | {"replicas": 1})["resources"]]
    assert "PodDisruptionBudget" not in kinds


def test_alerts_are_those_of_the_deployment_files(full):
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    assert full["PrometheusRule"]["spec"] == rules
