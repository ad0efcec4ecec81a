"""Parse the repository's own source: its modules, and what each imports."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """A Python file, with the name it is imported by."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree: a dozen tests look at each, and walking is slow."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> set[str]:
        """All imports, at any depth: "package.module", and "package.module.name" for an imported
        name.
        """
        names = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}: a relative import"
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
        return names

    @cached_property
    def packages(self) -> set[str]:
        """The top-level packages it imports that are not in the standard library."""
        return {name.partition(".")[0] for name in self.imports} - sys.stdlib_module_names


_module = cache(Module)
"""Parsed once per process: the trees of all modules take seconds and hundreds of MB."""


def modules(*packages: str) -> list[Module]:
    """Return the hand-written modules of these packages ("service/tbservice", "tests/unit", ...)."""
    sources = []
    for package in packages:
        top = ROOT / package
        for path in sorted(top.rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                parts = path.relative_to(top.parent).with_suffix("").parts
                name = ".".join(part for part in parts if part != "__init__")
                sources.append(_module(name, path))
    assert sources, f"nothing in {packages}"
    return sources


def product() -> list[Module]:
    """Return all modules that are shipped."""
    return modules("service/tbservice", "uploader/tbupload", "uploader/tbwire")
