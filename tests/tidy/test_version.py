"""The version is in pyproject.toml; what must repeat it is compared."""

from __future__ import annotations

import re
import tomllib

import pytest

from support.source_code import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = re.compile(r"\btbhub:(\d+\.[\w.+-]*\w)")
PLACES = [
    ROOT / "docker-compose.yml",
    *sorted((ROOT / "deploy").rglob("*.y*ml")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def test_images_have_version():
    wrong = {
        (path.name, version)
        for path in PLACES
        for version in IMAGE.findall(path.read_text())
        if version != VERSION
    }
    assert not wrong
    assert f"image: tbhub:{VERSION}" in (ROOT / "docker-compose.yml").read_text()


@pytest.mark.parametrize("key", ["version", "appVersion"])
def test_chart_has_version(key):
    chart = (ROOT / "deploy/helm/tbhub/Chart.yaml").read_text()
    assert re.search(rf'^{key}: "?([^"\n]+)"?$', chart, re.MULTILINE)[1] == VERSION


def test_changelog_has_section_of_version():
    sections = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == VERSION
    assert len(sections) == len(set(sections))


def test_programs_read_version_of_distribution():
    for folder in ("service", "uploader"):
        for path in (ROOT / folder).rglob("*.py"):
            assert VERSION not in re.findall(r'"([^"\n]*)"', path.read_text()), path
