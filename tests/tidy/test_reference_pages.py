"""The reference pages have every message field, error code, package and module of tables."""

from __future__ import annotations

import re

import pytest

from support.proto_source import declared
from support.source_code import ROOT
from tbservice import errors
from tbservice.errors import ServiceError

RECIPES = ("CONTRIBUTING.md", "docs/architecture.md", "docs/compatibility.md")
SOURCES = ("service", "uploader", "tests", "migrations")
NAME = re.compile(r"[a-zA-Z]_[a-zA-Z]|[a-z][A-Z]|^_")
PLACED = re.compile(r"`([\w./]+\.py)`(?: \(|: )((?:`\w+`(?:, | and | → )?)+)")
"""A file and names in it: `file.py` (`name`, `name`) or `file.py`: `name` and `name`."""
EXAMPLES = {"NNNN_name", "test_ingest_repeated_segment_is_noop"}


def page(name):
    return (ROOT / "docs" / name).read_text()


def names(text):
    """Return the words in code spans, those of lists such as `a`, `b` and of paths too."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))


@pytest.mark.parametrize("proto", ["wire", "read"])
def test_wire_page_names_every_field(proto):
    text = page("wire.md")
    missing = {
        (message, field)
        for message, fields in declared(ROOT / f"uploader/tbwire/{proto}.proto").items()
        for field in fields
        if field not in names(text) or message not in names(text)
    }
    assert not missing


def test_api_page_has_every_error():
    text = page("api.md")
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    named = {
        (each.status, each.code)
        for each in classes
        if issubclass(each, ServiceError) and each is not ServiceError
    }
    assert len(named) > 10
    shown = set(re.findall(r"^\| (\d+) \| (.*?) \|", text, re.MULTILINE))
    assert not {
        (status, code)
        for status, code in named
        if not any(int(number) == status and f"`{code}`" in codes for number, codes in shown)
    }


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_name_what_exists(name):
    """Names of functions, classes, constants and modules; renamed ones would send readers astray."""
    known = set()
    for path in (path for top in SOURCES for path in (ROOT / top).rglob("*")):
        known.add(path.stem)
        if path.suffix in {".py", ".proto", ".js"}:
            known.update(re.findall(r"\w+", path.read_text()))
    spans = re.findall(r"`([\w./]+)`", (ROOT / name).read_text())
    named = {word for span in spans for word in re.findall(r"\w+", span) if NAME.search(word)}
    assert len(named) > 20
    assert not named - known - EXAMPLES


@pytest.mark.parametrize("name", RECIPES[:2])
def test_recipes_name_files_with_what_is_in_them(name):
    files = [path for top in SOURCES for path in (ROOT / top).rglob("*.py")]
    placed = PLACED.findall(re.sub(r"\s+", " ", (ROOT / name).read_text()))
    assert len(placed) > 5
    assert not {
        (file, word)
        for file, spans in placed
        for word in names(spans)
        if not any(
            re.search(rf"\b{word}\b", path.read_text())
            for path in files
            if path.as_posix().endswith(f"/{file}")
        )
    }


def test_architecture_page_has_every_package():
    linked = set(re.findall(r"\]\(\.\./([^)#]+)\)", page("architecture.md")))
    packages = {
        str(path.parent.relative_to(ROOT))
        for name in ("service/tbservice", "uploader/tbupload")
        for path in (ROOT / name).glob("*/__init__.py")
    }
    assert len(packages) > 15
    assert packages <= linked


def test_architecture_page_has_every_module_of_tables():
    versions = (ROOT / "migrations" / "versions").glob("*.py")
    tables = set(re.findall(r"CREATE TABLE (\w+)", "".join(path.read_text() for path in versions)))
    section = page("architecture.md").partition("### Tables")[2].partition("\n## ")[0]
    modules = {path.stem for path in (ROOT / "service/tbservice").glob("*/tables/*.py")}
    assert modules - {"__init__"} - tables <= names(section)
