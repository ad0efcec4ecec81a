"""A program that is missing costs its tests, not the run; where the variable CI is set, it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULE = """
from support.programs import find_program

def test_that_needs_chromium():
    find_program("chromium")

def test_that_needs_nothing():
    pass
"""


def run(directory, **environment):
    """Run MODULE with our conftest and an empty PATH; return the exit code and the output."""
    (directory / "test_needs.py").write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--rootdir", directory, directory]
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"PATH": str(directory), "PYTHONPATH": str(TESTS)}
    ran = subprocess.run(
        command, check=False, env=kept | environment, capture_output=True, text=True
    )
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("environment", [{}, {"CI": "false"}], ids=["unset", "false"])
def test_missing_program_skips_and_says_how_to_install_it(tmp_path, environment):
    code, output = run(tmp_path, **environment)
    assert code == 0, output
    assert "1 passed, 1 skipped" in output
    assert "tests skipped because a program is missing: 1" in output
    assert "  chromium: test_needs.py (1)" in output
    assert "as root: apt-get install" in output
    assert "chromium-headless-shell fonts-dejavu-core" in output


def test_missing_program_fails_where_ci_is_set(tmp_path):
    code, output = run(tmp_path, CI="true")
    assert code == 1, output
    assert "chromium is missing: apt-get install" in output
