"""The client on the Pythons that TBHUB_PYTHONS names, with the oldest and the newest packages that
it runs with: its unit tests, and uploads to a service that runs on this Python.

`make test-pythons` runs it. Packages come from the package index.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from support import event_files, training_script
from support.clean_installs import build, dependencies, make_environment, pip_install
from support.client_tests import PACKAGES, client_tests
from support.complete_logdir import write_complete_logdir
from support.source_code import ROOT
from support.training_script import POINTS
from support.uploading import Reader, Uploader, tensorboard_scalars, wait_until

OLDEST = (3, 9)
"""The Python for which the lowest versions have wheels."""

UNIT_TESTS_SECONDS_MAX = 1800
TRAINING_SECONDS_MAX = 240
WITHOUT_SERVER = "tbservice needs Python 3.11 or newer; only tbupload runs on older ones\n"


def version_of(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return tuple(map(int, run.stdout.split()))


def cases():
    for python in os.environ["TBHUB_PYTHONS"].split():
        version = version_of(python)
        name = ".".join(map(str, version))
        for packages in ("lowest", "newest") if version == OLDEST else ("newest",):
            yield pytest.param(python, version, packages, id=f"{name}-{packages}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    wheel, _ = build(tmp_path_factory.mktemp("dist"))
    return wheel


@pytest.fixture(scope="module", params=[pytest.param(case.values, id=case.id) for case in cases()])
def environment(request, wheel, tmp_path_factory):
    """An environment with the wheel, the packages of the tests, and what these need."""
    python, _, packages = request.param
    environment = make_environment(tmp_path_factory.mktemp("environment"), python)
    constraints = environment.directory / "constraints.txt"
    lowest = [f"{name}=={version}" for name, version in dependencies().items()]
    constraints.write_text("\n".join(lowest if packages == "lowest" else []))
    needed = ("--only-binary", ":all:", "--constraint", constraints)
    pip_install(environment, *needed, wheel, *PACKAGES.values())
    return environment


@pytest.fixture
def uploader(environment, live_service, tmp_path):
    return Uploader(live_service.url, live_service.new_owner(), tmp_path, environment.python)


@pytest.fixture
def reader(uploader):
    reader = Reader(uploader.server, uploader.token)
    yield reader
    reader.http.close()


def test_unit_tests_of_client_pass(environment):
    environment.run(
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "ci"),
        *("-c", os.devnull, "--rootdir", ROOT, "--confcutdir", ROOT / "tests/unit"),
        *(test.path for test in client_tests()),
        seconds_max=UNIT_TESTS_SECONDS_MAX,
        PYTHONPATH=str(ROOT / "tests"),
    )


def test_client_follows_verifies_and_exports(uploader, reader, tmp_path):
    logdir = write_complete_logdir(tmp_path / "logdir")
    with uploader.follow(logdir) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: "a/b" in reader.get(experiment_id, "scalars"))
        (path,) = (logdir / "a/b").glob("*tfevents*")
        event_files.write_records(path, [event_files.scalar_event("loss", 90, 0.5)], append=True)
        wait_until(lambda: reader.get(experiment_id, "scalars")["a/b"]["loss"]["count"] == 91)
        ended = following.stop()
    assert ended.code == 0, ended.err

    which = ("--logdir", logdir, "--experiment", experiment_id)
    verified = uploader.run_process("verify", "--strict", "--deep", *which)
    assert verified.code == 0, verified.out + verified.err
    output = tmp_path / "exported"
    exported = uploader.run_process("export", "--format", "events", *which[2:], "--output", output)
    assert exported.code == 0, exported.err
    assert tensorboard_scalars(output) == tensorboard_scalars(logdir)


def test_script_with_real_writer_is_followed(environment, uploader, reader, tmp_path):
    logdir = tmp_path / "runs"
    logdir.mkdir()
    (tmp_path / "urllib3.py").write_text("raise RuntimeError('found in the working directory')")
    printed = environment.run(
        *("python", training_script.__file__, "tensorboardX", "before", "return", logdir),
        seconds_max=TRAINING_SECONDS_MAX,
        cwd=tmp_path,
        TBHUB_SERVER=uploader.server,
        TBHUB_TOKEN=uploader.token,
        TBHUB_CONFIG=str(tmp_path / "config.toml"),
    )
    experiment_id, _ = printed.split()
    wait_until(lambda: count_of(reader.get(experiment_id, "scalars")) == POINTS)


def count_of(series):
    return series.get("run", {}).get("loss", {}).get("count")


def test_server_says_on_old_python_what_it_needs(environment, request):
    _, version, _ = request.node.callspec.params["environment"]
    code = "import tbservice"
    command = [environment.python, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr == (WITHOUT_SERVER if version < (3, 11) else "")
