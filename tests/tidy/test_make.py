"""`make` alone prints what there is to make, from the Makefile itself."""

import re
import subprocess
from pathlib import Path

import pytest

from support.changed import choose
from support.source_code import modules

ROOT = Path(__file__).parent.parent.parent
LINE_CHARS_MAX = 100
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
    assert not [line for line in alone.splitlines() if len(line) > LINE_CHARS_MAX]


@pytest.mark.parametrize(
    ("changed", "near", "far"),
    [
        ("service/tbservice/api/v1/sharing/share_links.py", "test_share_links", "test_katib_logs"),
        ("service/tbservice/katib/observation_log.py", "test_katib_logs", "test_share_links"),
        ("service/tbservice/series/compactor.py", "test_compactor", "test_katib_logs"),
        ("tests/integration/test_page.py", "test_page", "test_share_links"),
    ],
    ids=["by its own name", "by its package's name", "by imports", "the test itself"],
)
def test_check_chooses_tests_of_what_changed(changed, near, far):
    names = {path.stem for path in choose([changed], "service", modules("tests/integration"))}
    assert near in names
    assert far not in names
