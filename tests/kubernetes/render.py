"""Lint and render a chart with Helm, and validate what comes out; run by the environment of `make test-helm`.

Usage: render.py CHART < values.json > result.json
"""

from __future__ import annotations

import json
import sys

import kubernetes_validate
import yaml
from helm_python import HelmError
from helm_python.chart import Chart, lint

VERSIONS = ("1.29", "1.37")
"""Of Kubernetes: the oldest that the chart admits, and the newest whose schemas are known."""
NATIVE = ("v1", "apps/", "batch/", "policy/", "networking.k8s.io/")


def list_faults(resource):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(resource, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{resource['kind']}, Kubernetes {version}: {error.message}"


def main():
    chart, values = sys.argv[1], json.load(sys.stdin)
    result = {"refused": "", "lint": [], "resources": [], "notes": "", "faults": []}
    try:
        linted = lint(chart, values=values, strict=True)
        result["lint"] = [message["error"] for message in linted["messages"]] + linted["errors"]
        texts = Chart.load(chart).render(values=values, name="hub", namespace="ml")
    except HelmError as error:
        texts, result["refused"] = {}, str(error)
    for path, text in texts.items():
        if path.endswith("NOTES.txt"):
            result["notes"] = text
            continue
        result["resources"] += [resource for resource in yaml.safe_load_all(text) if resource]
    for resource in result["resources"]:
        if resource["apiVersion"].startswith(NATIVE):
            result["faults"] += list_faults(resource)
    json.dump(result, sys.stdout)


main()
