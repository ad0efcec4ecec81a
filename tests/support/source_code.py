"""The repository's own source, parsed: which modules there are and what each imports."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """One file of Python, under the name it is imported by."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def imports(self) -> set[str]:
        """Everything it imports, at any depth: "package.module", and "package.module.name" for a
        name from one.
        """
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.path}: a relative import"
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        return found

    @cached_property
    def packages(self) -> set[str]:
        """The top-level packages it imports that Python does not bring."""
        return {name.partition(".")[0] for name in self.imports} - sys.stdlib_module_names


def modules(*packages: str) -> list[Module]:
    """The hand-written modules of these packages ("service/tbservice", "tests/unit", ...)."""
    found = []
    for package in packages:
        top = ROOT / package
        for path in sorted(top.rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                parts = path.relative_to(top.parent).with_suffix("").parts
                found.append(Module(".".join(part for part in parts if part != "__init__"), path))
    assert found, f"nothing in {packages}"
    return found


def product() -> list[Module]:
    """Everything that is shipped."""
    return modules("service/tbservice", "uploader/tbupload", "uploader/tbwire")
