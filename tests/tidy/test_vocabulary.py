"""Names and prose use standard terms: see docs/glossary.md and CONTRIBUTING.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from support.source_code import ROOT, modules, product

BANNED = re.compile(
    r"\b(foretell\w*|foretold|reckon\w*|anew|but for|whoever|goes on|went on|gone on|stands|stood|lanes?"
    r"|patience|shelf|remembered|mergers?|doubts?|doubtful)\b",
    re.IGNORECASE,
)
"""Archaic or literary wording, for which a technical word exists."""

OBSCURE_START = re.compile(r"(?:What|Who|Whose|Whom|Where|Which|Of|Those|These|As|By|The same)\b")
"""Starts of a docstring that has no subject: readers must find it out for themselves."""

MODULE_NAMES = {
    "whole",
    "newer",
    "newest",
    "rows",
    "drawing",
    "lanes",
    "patience",
    "shelf",
    "remembered",
    "doubts",
}
PER = re.compile(r"(?<!NOT)_A_[A-Z]")
FILLERS = {"one"}
FILLERS_OF_TESTS = {"one", "found", "chosen"}
TEST_NAME_CHARS_MAX = 60

PRODUCT = product()
TESTS = modules("tests")
SUPPORT = [module for module in TESTS if {"support", "tidy"} & {*module.path.parts}]


def prose(module):
    """(line, text) of each comment, docstring and message of a module."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield token.start[0], token.string


def defined_names(module):
    """(line, name) of each function, class, argument and variable that a module defines."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def docstrings(module):
    """(line, text) of each docstring of a module, also those after constants and fields."""
    for node in module.nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.lineno, str(statement.value.value)


def words(name):
    """An identifier as words: `SyncPoint` and `sync_point` give "Sync Point", "sync point"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ")


def test_prose_has_no_banned_words():
    assert not [
        (module.name, line, match.group())
        for module in [*PRODUCT, *TESTS]
        if module.path != Path(__file__) and BANNED.search(module.text)  # before it is split: 5 s
        for line, text in prose(module)
        if (match := BANNED.search(text))
    ]


def test_docstrings_begin_with_subject_or_verb():
    assert not [
        (module.name, line, text.partition("\n")[0])
        for module in [*PRODUCT, *SUPPORT]
        for line, text in docstrings(module)
        if OBSCURE_START.match(text)
    ]


def test_names_have_no_banned_words():
    assert not [
        (module.name, line, name)
        for module in [*PRODUCT, *TESTS]
        for line, name in defined_names(module)
        if BANNED.search(words(name))
    ]


def test_pages_have_no_banned_words():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"]
    assert not [
        (page.name, match.group())
        for page in pages
        if page.name != "CONTRIBUTING.md" and (match := BANNED.search(page.read_text()))
    ]


def test_modules_are_named_by_nouns_of_glossary():
    assert not [module.name for module in PRODUCT if module.name.rpartition(".")[2] in MODULE_NAMES]


def test_constants_say_per():
    assert not [
        (module.name, node.id)
        for module in PRODUCT
        for node in module.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and PER.search(node.id)
    ]


@pytest.mark.parametrize(("sources", "fillers"), [(PRODUCT, FILLERS), (TESTS, FILLERS_OF_TESTS)])
def test_variables_are_nouns(sources, fillers):
    assert not [
        (module.name, line, name)
        for module in sources
        for line, name in defined_names(module)
        if name in fillers
    ]


def test_class_names_have_one_meaning():
    places = defaultdict(set)
    for module in PRODUCT:
        side = module.name.partition(".")[0]  # the same concept may have its class on both sides
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places[side, node.name].add(module.name)
    # One for each framework, by the name that their users know from other services.
    del places["tbupload", "TbhubCallback"]
    assert not {name: names for name, names in places.items() if len(names) > 1}


def test_names_of_tests_are_short():
    assert not [
        (module.name, node.name)
        for module in TESTS
        for node in module.nodes
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > TEST_NAME_CHARS_MAX
    ]
