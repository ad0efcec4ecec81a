"""The last release, built from its commit: what runs beside this version during an upgrade."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from support.clean_installs import Environment, build, make_environment, unpack
from support.source_code import ROOT

LAST_RELEASE = "v0.1.0"
"""Its tag; until the tag exists, RELEASE_COMMIT is taken for it."""

RELEASE_COMMIT = "3362618e6733f3c75686ad0c027cd87c0e11acb8"

LAST_MIGRATION = "0009_counters"
"""The latest migration of the last release."""


def has_last_release() -> bool:
    """Return whether the history has the last release: not in a shallow clone, or an archive."""
    return _archive_release() is not None


def _archive_release() -> bytes | None:
    for commit in (f"refs/tags/{LAST_RELEASE}", RELEASE_COMMIT):
        ended = subprocess.run(
            ["git", "archive", commit],  # noqa: S607 - the git on the path
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        if ended.returncode == 0:
            return ended.stdout
    return None


def release_files() -> tarfile.TarFile:
    """Return the files of the last release."""
    archive = _archive_release()
    assert archive is not None, f"no {LAST_RELEASE} in this checkout: git fetch --unshallow --tags"
    return tarfile.open(fileobj=io.BytesIO(archive))


def install_release(directory: Path) -> Environment:
    """Build the wheel of the last release, and unpack it beside the packages of the tests.

    That is what pip does with a wheel of Python modules, except that it also writes the commands.
    """
    with release_files() as archive:
        unpack(archive, directory / "source")
    wheel, _ = build(directory / "dist", directory / "source")
    environment = make_environment(directory / "environment")
    # In a `.pth` file each line is a directory to look into, in which `.pth` files are not read: so
    # this checkout, installed editable, is not found there.
    (packages,) = environment.directory.glob("lib/python*/site-packages")
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed))
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(packages)  # noqa: S202 - a wheel of ours
    return environment
