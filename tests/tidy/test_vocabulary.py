"""Names and prose use standard terms: see docs/glossary.md and CONTRIBUTING.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict

from support.source_code import ROOT, modules, product

BANNED = re.compile(
    r"\b(foretell\w*|foretold|reckon\w*|anew|but for|whoever|goes on|went on|it stands|it stood|lanes|patience)\b",
    re.IGNORECASE,
)
"""Archaic or literary wording, for which a technical word exists."""

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
TEST_NAME_CHARS_MAX = 60

PRODUCT = product()
TESTS = modules("tests")


def prose(module):
    """(line, text) of each comment, docstring and message of a module."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield token.start[0], token.string


def test_prose_has_no_banned_words():
    assert not [
        (module.name, line, found.group())
        for module in PRODUCT
        for line, text in prose(module)
        if (found := BANNED.search(text))
    ]


def test_pages_have_no_banned_words():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert not [
        (page.name, found.group())
        for page in pages
        if page.name != "CONTRIBUTING.md" and (found := BANNED.search(page.read_text()))
    ]


def test_modules_are_named_by_nouns_of_glossary():
    assert not [module.name for module in PRODUCT if module.name.rpartition(".")[2] in MODULE_NAMES]


def test_constants_say_per():
    assert not [
        (module.name, node.id)
        for module in PRODUCT
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and PER.search(node.id)
    ]


def test_variables_are_nouns():
    assert not [
        (module.name, node.lineno, node.id)
        for module in PRODUCT
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in FILLERS
    ]


def test_class_names_have_one_meaning():
    places = defaultdict(set)
    for module in PRODUCT:
        side = module.name.partition(".")[0]  # the same concept may have its class on both sides
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[side, node.name].add(module.name)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_names_of_tests_are_short():
    assert not [
        (module.name, node.name)
        for module in TESTS
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > TEST_NAME_CHARS_MAX
    ]
