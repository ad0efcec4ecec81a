"""Clients that others generate from the OpenAPI document: they are generated, compiled and run.

`make test-clients` installs the generators. Each client creates an experiment, reads it back, and
reports an error.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from support.programs import find_node
from support.subprocesses import run_to_end
from support.waiting import SECONDS_MAX

TOOLS = Path(os.environ.get("TBHUB_CLIENTS", "no/such"))
PROGRAMS = Path(__file__).parent
ANSWER = {"name": "generated", "missing": 404, "tags": ["a"]}


@pytest.fixture
def document(live_service, tmp_path):
    """The OpenAPI document of the live service, in a file."""
    file = tmp_path / "openapi.json"
    run("curl", "--silent", "--output", file, f"{live_service.url}/api/v1/openapi.json")
    return file


@pytest.fixture
def environment(live_service, tmp_path):
    """Address and token of the service for a client, and a place for what is compiled."""
    home = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return {
        "PATH": f"{TOOLS}/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GOCACHE": f"{home}/tbhub-go",  # a minute of compiling the standard library
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "SERVER": live_service.url,
        "TOKEN": live_service.new_owner(),
    }


def tool(name):
    """Return the path of a program that `make test-clients` has installed."""
    path = TOOLS / name
    assert path.exists(), f"{path} is missing"
    return path


def run(*command, **options):
    ended = run_to_end([str(each) for each in command], timeout=5 * SECONDS_MAX, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_python_client_runs(document, environment, tmp_path):
    generator = tool("bin/openapi-python-client")
    options = ("--output-path", tmp_path / "tbhub_client", "--meta", "none")
    run(generator, "generate", "--path", document, *options, env=environment)
    python = environment | {"PYTHONPATH": str(tmp_path)}
    printed = run(TOOLS / "bin" / "python", PROGRAMS / "client.py", env=python)
    assert json.loads(printed) == ANSWER


def test_typescript_client_runs(document, environment, tmp_path):
    modules = tool("node_modules")
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(PROGRAMS / "client.ts", tmp_path)
    node = find_node()
    generator = modules / "openapi-typescript" / "bin" / "cli.js"
    # Else a field with a default has to be sent.
    form = ("--default-non-nullable", "false")
    run(node, generator, document, "--output", tmp_path / "api.d.ts", *form, cwd=tmp_path)
    options = ("--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck", "false")
    run(node, modules / "typescript" / "bin" / "tsc", *options, "client.ts", cwd=tmp_path)
    assert json.loads(run(node, tmp_path / "client.js", env=environment)) == ANSWER


def test_go_client_runs(document, environment, tmp_path):
    generator, go = tool("bin/openapi-generator-cli"), tool("bin/go")
    assert shutil.which("java"), "java is missing: apt-get install default-jre-headless"
    client = tmp_path / "tbhub"
    options = "packageName=tbhub,withGoMod=false,enumClassPrefix=true"
    given = ("-g", "go", "-i", document, "-o", client, f"--additional-properties={options}")
    run(generator, "generate", *given, env=environment)
    shutil.rmtree(client / "test")  # needs a package
    (tmp_path / "go.mod").write_text("module example\n\ngo 1.21\n")
    shutil.copy(PROGRAMS / "client.go", tmp_path / "main.go")
    assert json.loads(run(go, "run", ".", cwd=tmp_path, env=environment)) == ANSWER
