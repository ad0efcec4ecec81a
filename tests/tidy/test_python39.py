"""The client uses nothing of a Python newer than 3.9, nor do the tests that run there.

`make test-pythons` runs them on it. Here, vermin knows what came with which version, where the name
says it; the other checks are for what it cannot tell without types.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from support.client_tests import client_tests, support_modules
from support.source_code import Module, modules

ARGUMENTS = {"from_bytes": 2, "to_bytes": 2}
"""Methods of int, and how many arguments they need before Python 3.11."""

METHODS = frozenset({"total"})
"""Methods that were new in 3.10: of Counter."""

ACCEPTED = (
    "tomllib",  # imported only where it is
    "copy.replace",  # bytes.replace is taken for it
    "sys.stdlib_module_names",  # of support.source_code, used by tidy tests only
)
"""Findings of vermin that are no newer syntax or call."""


def checked() -> list[Module]:
    tests = client_tests()
    support = set().union(*map(support_modules, tests))
    assert len(tests) > 30
    client = modules("uploader/tbupload", "uploader/tbwire")
    return [*client, *tests, *sorted(support, key=lambda module: module.name)]


def findings(module: Module) -> list[str]:
    """Return places with what only newer Pythons can do."""
    places = []
    for node in module.nodes:
        if isinstance(node, ast.Call):
            places += _of_call(node)
        elif isinstance(node, ast.Assign) and _is_union(node.value):
            places.append(f"line {node.lineno}: an alias with |")
    return places


def _of_call(call: ast.Call) -> list[str]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    count = len(call.args) + len(call.keywords)
    if name in METHODS and not count:
        return [f"line {call.lineno}: {name}()"]
    if count < ARGUMENTS.get(name, 0):
        return [f"line {call.lineno}: {name} with {count} arguments"]
    if name in {"isinstance", "issubclass", "TypeVar", "cast"} and any(
        _is_union(each) for each in (*call.args[1:], *(word.value for word in call.keywords))
    ):
        return [f"line {call.lineno}: {name} with |"]
    return []


def _is_union(node: ast.expr) -> bool:
    """Return whether it is `A | B` of types, as far as their names tell."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
        return False
    return any(_is_type(side) or _is_union(side) for side in (node.left, node.right))


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    if isinstance(node, ast.Constant):
        return node.value is None
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    is_class = name[:1].isupper() and not name.isupper()
    return is_class or name in {"bool", "bytes", "dict", "float", "int", "list", "str", "tuple"}


def test_client_has_no_newer_call_or_union():
    by_module = {module.name: findings(module) for module in checked()}
    assert {name: places for name, places in by_module.items() if places} == {}


@pytest.mark.parametrize(
    "code",
    [
        "Blob = bytes | None",
        "Points = Scalars | Tensors[int]",
        "isinstance(x, int | float)",
        "T = TypeVar('T', bound=int | str)",
        "counter.total()",
        "int.from_bytes(b'')",
    ],
)
def test_newer_call_or_union_is_found(tmp_path, code):
    (tmp_path / "new.py").write_text(code)
    assert findings(Module("new", tmp_path / "new.py"))


def test_client_has_no_newer_name_syntax_or_option():
    options = ["--target=3.9-", "--no-tips", "--violations", "-vv"]
    for name in ACCEPTED:
        options += ["--exclude", name]
    vermin = [sys.executable, "-c", "from vermin.main import main; main()"]
    paths = [module.path for module in checked()]
    ended = subprocess.run([*vermin, *options, *paths], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
