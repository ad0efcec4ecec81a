"""What the README tells people to type exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from support.source_code import ROOT

SHELLS = {"", "sh", "bash", "console"}
PROGRAMS = {"tbupload", "tbservice"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "deploy").rglob("*.md"))]


def commands():
    """Each line in a fenced block of a page that begins with one of our commands or `make`, split into words."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
        for block in (content for language, content in blocks if language in SHELLS):
            for line in block.replace("\\\n", " ").splitlines():
                for part in line.removeprefix("$ ").split("&&"):
                    words = shlex.split(part, comments=True)
                    if words and words[0].rpartition("/")[2] in {*PROGRAMS, "make"}:
                        found.append(words)
    return found


def test_the_readme_shows_the_two_commands_and_both_programs():
    shown = commands()
    assert {tuple(words[:2]) for words in shown} >= {("make", "up"), ("make", "test")}
    assert {words[0].rpartition("/")[2] for words in shown} >= PROGRAMS


@pytest.mark.parametrize(
    "words", [words for words in commands() if words[0] == "make"], ids=" ".join
)
def test_a_target_that_is_shown_exists(words):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words[1:] if "=" not in word} <= set(targets)


@pytest.mark.parametrize(
    "words", [words for words in commands() if words[0] != "make"], ids=" ".join
)
def test_a_command_that_is_shown_exists_with_its_options(words):
    program, *rest = words
    verb = []
    for word in rest:
        if word.startswith("-") or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        verb.append(word)
    command = [sys.executable, "-m", program.rpartition("/")[2], *verb, "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert options <= set(re.findall(r"--[\w-]+", ended.stdout))
