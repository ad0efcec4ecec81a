"""Build what a release consists of: `make release` runs this.

    python deploy/release.py DIST CYCLONEDX_PY [--draft]

Writes the wheel, the source distribution, a list of all locked packages (SBOM, CycloneDX) and their
checksums into the new directory DIST. Builds twice, and fails if a byte differs. The same commit
gives the same files anywhere: every time in them is that of the commit.

Refuses a checkout with changes and a changelog without the version's date; `--draft` does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SUMS: Final = "SHA256SUMS"


class ReleaseError(Exception):
    """Something is missing for a release; the message says what to do."""


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    is_draft = "--draft" in arguments
    directory, cyclonedx = (Path(each) for each in arguments if each != "--draft")
    try:
        if not is_draft:
            check_checkout()
        release(directory, cyclonedx)
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


def release(directory: Path, cyclonedx: Path) -> None:
    """Write the files of the release into the directory, which must not exist."""
    if directory.exists():
        raise ReleaseError(f"{directory} exists: remove it, or name another")
    environment = os.environ | {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct")}
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build(Path(scratch, name), environment) for name in ("first", "second"))
        if first != second:
            raise ReleaseError(f"two builds differ: {first} and {second}")
        shutil.copytree(Path(scratch, "first"), directory)
    write_sbom(directory / f"tbhub-{read_version()}.cdx.json", cyclonedx)
    (directory / SUMS).write_text(
        "".join(f"{digest}  {name}\n" for name, digest in sums(directory))
    )


def build(directory: Path, environment: dict[str, str]) -> list[tuple[str, str]]:
    """Build the wheel and the source distribution; return their names and checksums."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return sums(directory)


def write_sbom(path: Path, cyclonedx: Path) -> None:
    """Write the packages of `requirements.lock`, with their hashes, without time and number."""
    options = ("--output-reproducible", "--pyproject", "pyproject.toml", "--of", "JSON")
    lock = "requirements.lock"
    command = [
        str(cyclonedx.absolute()),
        "requirements",
        *options,
        "-o",
        str(path.absolute()),
        lock,
    ]
    # It warns that a lock does not tell which package needs which.
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stderr=subprocess.DEVNULL)


def sums(directory: Path) -> list[tuple[str, str]]:
    """Return the name and the SHA-256 of each file in the directory, by name."""
    files = sorted(file for file in directory.iterdir() if file.name != SUMS)
    return [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


def read_version() -> str:
    """Return the version, which stands in pyproject.toml alone."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
