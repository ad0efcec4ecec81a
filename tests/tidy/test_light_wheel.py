"""A plain install is the uploader, with few dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from support.source_code import ROOT, modules

MODULES_OF = {
    "google-crc32c": "google_crc32c",
    "numpy": "numpy",
    "protobuf": "google",
    "tqdm": "tqdm",
    "urllib3": "urllib3",
}

TOML_OF_OLD_PYTHONS = "tomli>=2.0; python_version < '3.11'"
"""Newer ones have it themselves."""

# Nothing but Python, the five packages, what they need of each other, and our own two can be
# imported.
PLAIN_INSTALL = """
import sys

class Absent:
    allowed = {allowed!r} | sys.stdlib_module_names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError("not in a plain install: " + name, name=name)

sys.meta_path.insert(0, Absent())
from tbupload.cli import main
sys.exit(main({arguments!r}))
"""


def dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        re.match(r"[\w.-]+", requirement).group()
        for requirement in project["dependencies"]
        if requirement != TOML_OF_OLD_PYTHONS
    }


def test_uploader_depends_on_five_packages():
    assert dependencies() == set(MODULES_OF)


def test_uploader_imports_no_other_package():
    allowed = {*MODULES_OF.values(), "tbupload", "tbwire"}
    assert {
        (module.name, package)
        for module in modules("uploader/tbupload", "uploader/tbwire")
        for package in module.packages - allowed
    } == {
        ("tbupload.forward.forwarder", "grpc"),  # an extra, which one command imports
        ("tbupload.remote_files", "fsspec"),  # the same
        ("tbupload.config", "tomli"),
    }


def test_uploader_reads_real_files_with_nothing_else_installed():
    allowed = {*MODULES_OF.values(), "tbupload", "tbwire"}
    arguments = ["--dry-run", "--logdir", str(ROOT / "tests/data/pytorch")]
    script = PLAIN_INSTALL.format(allowed=allowed, arguments=arguments)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "scalars" in ended.stdout + ended.stderr
