"""Check the README and the documentation: commands, links, paths, limits and API examples exist."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from urllib.parse import parse_qsl, urlsplit

import pytest

from support.source_code import ROOT

OPERATION_ID_CHARS_MAX = 30
README_LINES_MAX = 100
LINE_CHARS_MAX = 120
"""Length of a line of prose, a heading or a list."""

ROW_CHARS_MAX = 200
"""Length of a row of a table, which cannot be wrapped: use a list where more is needed."""

CODE_CHARS_MAX = 160
"""Length of a line of code, which readers copy as it is."""

SHELLS = {"", "sh", "bash", "console"}
PROGRAMS = {"tbupload", "tbservice"}
NAMED = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "tests/README.md",
    "tests/data/README.md",
    "deploy/README.md",
)
PAGES = [*(ROOT / name for name in NAMED), *sorted((ROOT / "docs").rglob("*.md"))]
SOURCE_DIRECTORIES = ("service", "uploader", "tests", "migrations")
PATH = re.compile(r"`([\w-]+(?:/[\w-]+)*\.(?:py|proto|yml))(?:::\w+)?`")
LIMIT = re.compile(r"`([a-z][a-z_]*_(?:max|min|bytes|seconds|points))`")
BODY_OPTIONS = {"--json", "--data", "-d"}


def code_blocks(page):
    """Return the (language, content) of each fenced block."""
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)


def prose(page):
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def shell_lines(page):
    """Return each command line of the page's shell blocks, split into words, without comments."""
    lines = []
    for content in (content for language, content in code_blocks(page) if language in SHELLS):
        for line in content.replace("\\\n", " ").splitlines():
            lines += [
                shlex.split(part, comments=True) for part in line.removeprefix("$ ").split("&&")
            ]
    return [words for words in lines if words]


def commands():
    """Return each shown command of ours, or of make, also those that run in a container."""
    shown = []
    for words in (words for page in PAGES for words in shell_lines(page)):
        inside = words[4:] if words[:3] == ["docker", "compose", "exec"] else words
        if inside and inside[0].rpartition("/")[2] in {*PROGRAMS, "make"}:
            shown.append(inside)
    return shown


def requests():
    return [words for page in PAGES for words in shell_lines(page) if words[0] == "curl"]


def printed_by(program, *arguments):
    """Return the output of a command that ends well; in this process, as a new one takes a second."""
    with redirect_stdout(io.StringIO()) as printed:
        try:
            code = import_module(f"{program}.cli").main([*arguments])
        except SystemExit as ended:
            code = ended.code
    assert not code, (program, *arguments)
    return printed.getvalue()


@cache
def help_of(program, *verb):
    return printed_by(program, *verb, "--help")


@cache
def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def openapi():
    return json.loads(printed_by("tbservice", "openapi"))


def test_readme_shows_both_commands_and_both_programs():
    shown = commands()
    assert {tuple(words[:2]) for words in shown} >= {("make", "up"), ("make", "test")}
    assert {words[0].rpartition("/")[2] for words in shown} >= PROGRAMS


def test_readme_is_short_enough_to_read():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_lines_of_pages_are_short():
    long = []
    for page in PAGES:
        is_code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            is_row = line.startswith("|")
            most = CODE_CHARS_MAX if is_code else ROW_CHARS_MAX if is_row else LINE_CHARS_MAX
            if len(line) > most:
                long.append((page.name, number, len(line)))
    assert not long


def test_shown_make_targets_exist():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = [words for words in commands() if words[0] == "make"]
    asked = {word for words in shown for word in words[1:] if "=" not in word}
    assert asked <= set(targets)


def test_shown_commands_exist_with_their_options():
    for words in (words for words in commands() if words[0] != "make"):
        program, *rest = words[: words.index("--")] if "--" in words else words
        program = program.rpartition("/")[2]
        verb = []
        for word in rest:
            if word.startswith("-") or not re.fullmatch(r"[a-z][a-z-]*", word):
                break
            verb.append(word)
        if program == "tbupload" and rest[0] == "--logdir":  # short for `tbupload upload`
            verb = ["upload"]
        options = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert options <= set(re.findall(r"--[\w-]+", help_of(program, *verb))), words


def test_links_lead_to_files_and_headings():
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((page.name, link))
    assert not broken


def test_paths_named_in_pages_exist():
    files = [
        path.as_posix()
        for name in (*SOURCE_DIRECTORIES, "deploy")
        for path in (ROOT / name).rglob("*.*")
    ]
    files += [path.as_posix() for path in ROOT.iterdir()]
    missing = {
        (page.name, path)
        for page in PAGES
        for path in PATH.findall(page.read_text())
        if not any(file.endswith(f"/{path}") for file in files)
    }
    assert not missing


def test_limits_named_in_pages_exist():
    sources = [
        path
        for name in SOURCE_DIRECTORIES
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".proto"}
    ]
    names = set(re.findall(r"\w+", "".join(path.read_text() for path in sources).lower()))
    assert not {
        (page.name, name)
        for page in PAGES
        for name in LIMIT.findall(page.read_text())
        if name not in names
    }


def test_openapi_suits_strict_validators_and_generated_clients(openapi):
    """Operation ids are the names of functions of generated clients: they are the API's, too."""
    operations = [each for path in openapi["paths"].values() for each in path.values()]
    ids = [each["operationId"] for each in operations]
    assert len({*ids}) == len(ids)
    assert max(map(len, ids)) <= OPERATION_ID_CHARS_MAX
    assert all("security" in each for each in operations)
    assert all(re.fullmatch(r"\w+", name) for name in openapi["components"]["securitySchemes"])
    assert openapi["servers"]


@pytest.mark.parametrize("words", requests(), ids=lambda words: words[-1][-60:])
def test_api_example_matches_openapi(words, openapi):
    (url,) = [word for word in words if word.startswith("$TBHUB_SERVER")]
    address = urlsplit(url.removeprefix("$TBHUB_SERVER"))
    method = (
        words[words.index("-X") + 1]
        if "-X" in words
        else "POST"
        if BODY_OPTIONS & {*words}
        else "GET"
    )
    operations = [
        path[method.lower()]
        for template, path in openapi["paths"].items()
        if method.lower() in path
        and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), address.path)
    ]
    assert operations, f"no route for {method} {address.path}"
    given = {name for name, _ in parse_qsl(address.query)}
    given |= {
        words[at + 1].partition("=")[0]
        for at, word in enumerate(words)
        if word == "--data-urlencode"
    }
    assert any(
        given <= {parameter["name"] for parameter in operation.get("parameters", ())}
        for operation in operations
    )
    if "--json" in words:
        (operation,) = operations
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        if "$ref" in schema:
            schema = openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        body = json.loads(words[words.index("--json") + 1])
        assert body.keys() <= schema["properties"].keys()
