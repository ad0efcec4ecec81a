"""The unit tests that need no server: they run on every Python that the client runs on."""

from __future__ import annotations

from support.source_code import Module, modules

SERVER = frozenset({"tbservice", "httpx2"})
"""Packages that only the server's tests have; neither is there for Python 3.9."""

PACKAGES = {
    "hypothesis": "hypothesis",
    "pandas": "pandas",
    "PIL": "pillow",
    "pyarrow": "pyarrow",
    "pytest": "pytest",
    "tensorboard": "tensorboard",
    "tensorboardX": "tensorboardX",
    "yaml": "pyyaml",
}
"""Packages that they import besides the client's own, and how each is installed."""


def client_tests() -> list[Module]:
    """Return the unit tests that import nothing of the server, at any depth."""
    return [test for test in modules("tests/unit") if not packages(test) & SERVER]


def support_modules(test: Module) -> set[Module]:
    """Return the modules of `support` that a test imports, at any depth."""
    by_name = {module.name: module for module in modules("tests/support")}
    used_modules: set[Module] = set()
    waiting = [test]
    while waiting:
        imported = waiting.pop().imports
        used = {by_name[name] for name in by_name if _imports(imported, name)} - used_modules
        used_modules |= used
        waiting += used
    return used_modules


def packages(test: Module) -> set[str]:
    """Return the top-level packages that a test imports, at any depth of `support`."""
    return set().union(*(module.packages for module in (test, *support_modules(test))))


def _imports(imported: set[str], name: str) -> bool:
    return any(each == name or each.startswith(f"{name}.") for each in imported)
