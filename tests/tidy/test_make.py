"""`make` alone prints what there is to make, from the Makefile itself."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TARGETS = re.search(r"^\.PHONY: (.+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()


def printed_by(*arguments):
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_alone_prints_every_target_and_starts_nothing():
    alone = printed_by()
    shown = dict(re.findall(r"^  make ([\w-]+) +(\S.*)$", alone, re.MULTILINE))
    assert set(shown) == set(TARGETS)
    assert all(len(text) > 10 for text in shown.values())
    assert alone == printed_by("help")


@pytest.mark.parametrize("target", TARGETS)
def test_line_of_target_fits_terminal(target):
    (line,) = re.findall(rf"^  make {target} .*", printed_by(), re.MULTILINE)
    assert len(line) <= 100
