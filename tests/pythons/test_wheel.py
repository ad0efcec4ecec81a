"""The result of `pip wheel` can be installed, and runs with the packages that it asks for alone."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile

import pytest

from support.clean_installs import (
    build,
    closure,
    dependencies,
    link_distribution,
    make_environment,
    pip_install,
    project,
    requirements,
    unpack,
)
from support.source_code import modules

IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(sys.argv) - 1)
"""
NEEDS_OTHERS = ("tbupload.forward.forwarder", "tbupload.integrations")
"""Modules that import packages that a plain install lacks: grpcio, and the frameworks."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment with the wheel and, without a network, what it needs."""
    wheel, _ = built
    environment = make_environment(tmp_path_factory.mktemp("installed"))
    for name in dependencies():
        link_distribution(environment, name)
    pip_install(environment, "--no-index", wheel)
    return environment


def test_wheel_holds_migrations_and_no_tests(built):
    wheel, _ = built
    names = contents(wheel).keys()
    assert "tbservice/_migrations/versions/0001_schema.py" in names
    assert "tbservice/_migrations/env.py" in names
    rooms = {name.split("/")[0] for name in names if "dist-info" not in name}
    assert rooms == {"tbservice", "tbupload", "tbwire"}


def test_wheel_is_installed_with_its_commands(installed):
    version = project()["version"]
    assert installed.run("tbupload", "--version") == f"tbupload {version}\n"
    assert installed.run("tbservice", "--version") == f"tbservice {version}\n"
    printed = installed.run("python", "-c", "import tbupload; print(tbupload.__version__)")
    assert printed == f"{version}\n"


def test_every_module_of_client_can_be_imported(installed):
    names = {module.name for module in modules("uploader/tbupload", "uploader/tbwire")}
    names = {name for name in names if not name.startswith(NEEDS_OTHERS)} - {"tbupload.__main__"}
    generated = {f"tbwire.{name}_pb2" for name in ("wire", "read", "hparams", "tensorboard")}
    names |= generated
    assert installed.run("python", "-c", IMPORT_ALL, *sorted(names)) == f"{len(names)}\n"


def test_server_without_its_extra_says_what_to_install(installed):
    ended = subprocess.run(
        [installed.directory / "bin/tbservice", "serve"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("tbservice: the server's packages are not installed: run pip")
    assert ended.stderr.count("\n") == 1


def test_server_runs_with_packages_of_its_extra_alone(built, tmp_path):
    wheel, _ = built
    environment = make_environment(tmp_path)
    for name in closure(requirements("service")):
        link_distribution(environment, name)
    pip_install(environment, "--no-index", f"{wheel}[service]")
    assert environment.run("tbservice", "--version") == f"tbservice {project()['version']}\n"
    assert json.loads(environment.run("tbservice", "openapi"))["info"]["title"]


def test_source_distribution_builds_same_bytes(built, tmp_path):
    with tarfile.open(built[1]) as opened:
        unpack(opened, tmp_path)
    (source,) = tmp_path.iterdir()
    again = build(tmp_path / "dist", source)
    assert [path.name for path in again] == [path.name for path in built]
    for first, second in zip(built, again, strict=True):
        assert contents(first) == contents(second)
        assert first.read_bytes() == second.read_bytes()


def contents(path):
    """Return what is in an archive, to name what differs."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as opened:
            return {each.filename: (each.CRC, each.date_time) for each in opened.infolist()}
    with tarfile.open(path) as opened:
        return {each.name: (each.size, each.mtime, each.mode) for each in opened.getmembers()}
