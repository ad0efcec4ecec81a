"""The distribution files of this checkout, and environments with nothing but what is asked for."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.source_code import ROOT

BUILD_SECONDS_MAX = 60
INSTALL_SECONDS_MAX = 600
"""Old and new packages are downloaded."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin/python"

    def run(
        self, *command: object, seconds_max: float = 60, cwd: Path | None = None, **environment: str
    ) -> str:
        """Run a program of it, with no other package than its own; return what it prints.

        Fails with all of its output if its exit code is not 0.
        """
        program, *arguments = map(str, command)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "TBHUB_"))
        }
        ended = subprocess.run(
            [self.directory / "bin" / program, *arguments],
            env=kept | environment,
            cwd=cwd or self.directory,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


def unpack(archive: tarfile.TarFile, directory: Path) -> None:
    """Write the files of an archive of ours, with the filter of Python 3.14.

    Python 3.11.2 has none: https://docs.python.org/3/library/tarfile.html#supporting-older-python-versions
    """
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(directory)  # noqa: S202 - the files are ours


def project() -> dict:
    """Return the table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def dependencies() -> dict[str, str]:
    """Return what a plain install needs on this Python: names with their lowest versions."""
    requirements = [text for text in project()["dependencies"] if "python_version" not in text]
    return dict(requirement.split(">=") for requirement in requirements)


def requirements(*extras: str) -> list[str]:
    """Return what a plain install requires, or one with these extras."""
    own = project()
    more = [text for extra in extras for text in own["optional-dependencies"][extra]]
    return [*own["dependencies"], *more]


def closure(texts: list[str]) -> set[str]:
    """Return the packages that these requirements name, and all that those need on this Python."""
    seen: set[tuple[str, ...]] = set()
    waiting = [(text, ("",)) for text in texts]
    while waiting:
        text, extras = waiting.pop()
        requirement = Requirement(text)
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        marker = requirement.marker
        if key in seen or not (
            marker is None or any(marker.evaluate({"extra": e}) for e in extras)
        ):
            continue
        seen.add(key)
        of_this = ("", *requirement.extras)
        needed = importlib.metadata.requires(requirement.name) or []
        waiting += [(each, of_this) for each in needed]
    return {name for name, *_ in seen}


def build(directory: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """Build the wheel and the source distribution from a checkout, without the network.

    The files in them have the time 1,700,000,000.
    """
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", directory],
        cwd=source,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        timeout=BUILD_SECONDS_MAX,
        check=True,
    )
    (wheel,), (archive,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, archive


def make_environment(directory: Path, python: str | Path = sys.executable) -> Environment:
    """Return an empty environment, also without pip."""
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    return Environment(directory)


def link_distribution(environment: Environment, name: str) -> None:
    """Add a package that is installed here, as if it had been installed there.

    It is the same Python, so its files are linked: that takes no network, and no time.
    """
    (target,) = environment.directory.glob("lib/python*/site-packages")
    files = importlib.metadata.distribution(name).files or []
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        (source,) = {
            Path(str(file.locate())).parents[len(file.parts) - 1] / top
            for file in files
            if file.parts[0] == top
        }
        (target / top).symlink_to(source)


def pip_install(environment: Environment, *arguments: object) -> None:
    """Install with the pip of this Python.

    Modules are compiled when they are imported: each environment imports few.
    """
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", environment.python),
            *(
                "--disable-pip-version-check",
                "install",
                "--no-compile",
                "--quiet",
                *map(str, arguments),
            ),
        ],
        timeout=INSTALL_SECONDS_MAX,
        check=True,
    )
