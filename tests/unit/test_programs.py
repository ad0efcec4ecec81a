"""Our plugins of pytest: a program that is missing costs its tests, not the run, and fails where the
variable CI is set; a fixture of the session that failed is tried again, a few times.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped

from support import programs

TESTS = Path(__file__).parents[1]
MODULE = """
import pytest
from support.programs import find_program

tries = []

def test_that_needs_chromium():
    find_program("chromium")

@pytest.fixture(scope="session")
def first():
    tries.append("first")
    assert len(tries) > 1

@pytest.fixture(scope="session")
def never():
    tries.append("never")
    raise OSError

def test_a(first): pass
def test_b(first): pass
def test_c(first): assert tries == ["first"] * 2
@pytest.mark.parametrize("number", range(9))
def test_d(never, number): pass
def test_e(): assert tries.count("never") == 3
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """Run MODULE with our conftest, an empty PATH and no CI; return what pytest prints."""
    directory = tmp_path_factory.mktemp("tests")
    (directory / "test_needs.py").write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--rootdir", directory, directory]
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    environment = kept | {"PATH": str(directory), "PYTHONPATH": str(TESTS)}
    return subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True
    ).stdout


def test_missing_program_skips_and_says_how_to_install_it(output):
    assert "tests skipped because a program is missing: 1" in output
    assert "  chromium: test_needs.py (1)" in output
    assert "as root: apt-get install" in output
    assert "chromium-headless-shell fonts-dejavu-core" in output


def test_fixture_that_failed_is_tried_again_three_times(output):
    assert "3 passed, 1 skipped, 10 errors" in output


@pytest.mark.parametrize(
    ("value", "outcome"), [(None, Skipped), ("false", Skipped), ("true", Failed)]
)
def test_missing_program_fails_where_ci_is_set(monkeypatch, value, outcome):
    monkeypatch.delenv("CI", raising=False)
    if value:
        monkeypatch.setenv("CI", value)
    monkeypatch.setattr(programs, "PATH", "")
    monkeypatch.setenv("PATH", "")  # no apt either, which takes seconds
    with pytest.raises(outcome, match="chromium is missing: apt-get install"):
        programs.find_program("chromium")
