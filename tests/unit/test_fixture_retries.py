"""A fixture of the session that failed is tried again, a few times."""

import subprocess
import sys
from pathlib import Path

from support import fixture_retries

SOURCE = """
import pytest
tries = []

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


def test_fixture_that_failed_is_tried_again_three_times(tmp_path):
    (tmp_path / "test_it.py").write_text(SOURCE)
    folder = Path(fixture_retries.__file__).parents[1]
    options = ("-q", "--tb=no", "-p", "support.fixture_retries", f"--rootdir={tmp_path}")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path],
        cwd=tmp_path,
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.splitlines()[-1].startswith("3 passed, 10 errors"), ended.stdout
