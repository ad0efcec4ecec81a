"""Build what a release consists of: `make release` runs this.

    python deploy/release.py DIST [--draft]

Writes the wheel, the source distribution, a list of the packages in the image (SBOM, CycloneDX) and
their checksums into the new directory DIST. Builds twice, and fails if a byte differs. The same
commit gives the same files anywhere: every time in them is that of the commit.

Refuses a checkout with changes and a changelog without the version's date; `--draft` does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements-katib.lock"
SUMS: Final = "SHA256SUMS"


class ReleaseError(Exception):
    """Something is missing for a release; the message says what to do."""


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    is_draft = "--draft" in arguments
    (directory,) = (Path(each) for each in arguments if each != "--draft")
    try:
        if not is_draft:
            check_checkout()
        release(directory)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print((directory / SUMS).read_text(), end="")
    return 0


def check_checkout() -> None:
    """Check that the commit has all there is, and that the changelog has a date for the version."""
    if changed := _git("status", "--porcelain"):
        raise ReleaseError(f"commit these first:\n{changed}")
    version = read_version()
    if not re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$",
        (ROOT / "CHANGELOG.md").read_text(),
        re.MULTILINE,
    ):
        raise ReleaseError(f"CHANGELOG.md needs a line '## {version} (YYYY-MM-DD)'")


def release(directory: Path) -> None:
    """Write the files of the release into the directory, which must not exist."""
    if directory.exists():
        raise ReleaseError(f"{directory} exists: remove it, or name another")
    environment = os.environ | {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct")}
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build(Path(scratch, name), environment) for name in ("first", "second"))
        if first != second:
            raise ReleaseError(f"two builds differ: {first} and {second}")
        shutil.copytree(Path(scratch, "first"), directory)
    content = json.dumps(make_sbom(), indent=2) + "\n"
    (directory / f"tbhub-{read_version()}.cdx.json").write_text(content)
    (directory / SUMS).write_text(
        "".join(f"{digest}  {name}\n" for name, digest in sums(directory))
    )


def build(directory: Path, environment: dict[str, str]) -> list[tuple[str, str]]:
    """Build the wheel and the source distribution; return their names and checksums."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return sums(directory)


def make_sbom() -> dict[str, Any]:
    """Return the packages that the image has of `requirements-katib.lock`, as CycloneDX 1.6.

    With all hashes that the lock permits: which file is installed depends on the architecture.
    """
    version = read_version()
    components = [
        {
            "type": "library",
            "bom-ref": (purl := f"pkg:pypi/{name}@{number}"),
            "name": name,
            "version": number,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        }
        for name, number, digests in read_image_packages()
    ]
    purl = f"pkg:pypi/tbhub@{version}"
    tbhub = {"name": "tbhub", "version": version, "purl": purl, "bom-ref": purl}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application"} | tbhub},
        "components": components,
    }


def read_image_packages() -> list[tuple[str, str, list[str]]]:
    """Return name, version and SHA-256s of what the Dockerfile installs and does not remove."""
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    python = re.search(r"^ARG PYTHON_IMAGE=python:(3\.\d+)-", dockerfile, re.MULTILINE)
    removed = re.search(r"pip uninstall --yes ([a-z -]+)$", dockerfile, re.MULTILINE)
    if python is None or removed is None:
        raise ReleaseError("deploy/Dockerfile names no Python, or removes no package")
    image = {
        "sys_platform": "linux",
        "python_full_version": f"{python[1]}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    packages = []
    for entry in re.split(r"^(?=\w)", LOCK.read_text(), flags=re.MULTILINE):
        if not entry:
            continue
        requirement = Requirement(entry.partition("\\")[0])
        marker = requirement.marker
        if requirement.name not in removed[1].split() and (not marker or marker.evaluate(image)):
            (specifier,) = requirement.specifier
            digests = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
            packages.append((requirement.name, specifier.version, digests))
    return packages


def sums(directory: Path) -> list[tuple[str, str]]:
    """Return the name and the SHA-256 of each file in the directory, by name."""
    files = sorted(file for file in directory.iterdir() if file.name != SUMS)
    return [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


def read_version() -> str:
    """Return the version, which only pyproject.toml has."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
