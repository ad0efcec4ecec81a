"""Every limit has a unit, and every setting is documented for operators."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from support.source_code import ROOT, modules
from tbservice.api.v1.uploads.batches import wire_limits
from tbservice.settings import Settings

UNITS = re.compile(
    r"bytes|characters|chars|points|rows|seconds|segments|blobs|dimensions|items|streams|tokens|tags|pixels"
)

BOUND = re.compile(r"(?!INT\d)[A-Z]\w*_(MAX|MIN)")
"""A limit; the bounds of a type of integers are none."""

LIMITS = [
    module
    for module in modules("service/tbservice", "uploader/tbupload")
    if module.path.name == "limits.py"
]


def documented_names(tree):
    """(name, docstring or None) of each assignment at the top of a module."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if isinstance(target, ast.Name):
                yield target.id, following.value.value if is_text else None


@pytest.mark.parametrize("module", LIMITS, ids=lambda module: module.name)
def test_every_limit_has_docstring_and_unit(module):
    limits = {
        name: text
        for name, text in documented_names(module.tree)
        if name not in {"KIB", "MIB", "GIB"}
    }
    assert limits
    assert not {name: text for name, text in limits.items() if text is None}
    assert not [name for name, text in limits.items() if not UNITS.search(f"{name} {text}".lower())]


def test_limit_of_one_module_is_beside_its_code():
    """Except limits that clients are told, and those that the services of tests have smaller."""
    used = Counter(
        name
        for module in modules("service/tbservice")
        for name in set(re.findall(r"\blimits\.([A-Z]\w+)", module.path.read_text()))
    )
    told = {name.upper() for name in wire_limits()}
    small = "".join(path.read_text() for path in (ROOT / "tests/support").glob("*_service.py"))
    (shared,) = (module for module in LIMITS if module.name == "tbservice.limits")
    names = {name for name, _ in documented_names(shared.tree)} - {"KIB", "MIB"} - told
    assert not {name for name in names if used[name] < 2 and f"limits.{name} = " not in small}


def test_limit_of_one_module_of_the_client_is_beside_its_code():
    """Except the defaults of `ReadLimits`."""
    (shared,) = (module for module in LIMITS if module.name == "tbupload.limits")
    used = Counter(each for module in modules("uploader/tbupload") for each in module.imports)
    defaults = {node.id for node in shared.nodes if is_read(node)}
    names = {name for name, _ in documented_names(shared.tree)} - defaults
    assert not {name for name in names if used[f"tbupload.limits.{name}"] < 2}


def is_read(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def test_limits_beside_their_code_have_docstring_and_unit():
    """A public constant of the service that ends in _MAX or _MIN is a limit, wherever it is."""
    limits = {
        (module.name, name): text
        for module in modules("service/tbservice")
        for name, text in documented_names(module.tree)
        if BOUND.fullmatch(name)
    }
    assert len(limits) > 100
    assert not {
        place: text
        for place, text in limits.items()
        if not UNITS.search(f"{place[1]} {text}".lower())
    }


def test_every_setting_says_what_it_is():
    assert not [name for name, field in Settings.model_fields.items() if not field.description]


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "operations.md").read_text()
    assert not [name for name in Settings.model_fields if f"TBHUB_{name.upper()}" not in text]
