"""Print the test modules that `make check` adds to the quick ones: those of what changed.

Changed is what differs from where this branch left `main`, committed or not; on `main` itself, what
is not committed. Tests of the service are those of tests/integration, tests of the client those of
tests/e2e. One belongs to a changed module if it is named for the module or for its package
(`test_share_links.py` for `share_links.py`, `test_katib_logs.py` for `katib/observations.py`), or
if it imports it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from support.source_code import ROOT, Module, modules

FOLDERS = {"service": "tests/integration", "uploader": "tests/e2e"}
MODULES_MAX = 12
"""More would take longer than the three minutes that `make check` has."""


def git(*arguments: str) -> list[str]:
    """Return the lines that a command of git prints; none if it fails."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()  # noqa: PLW1510 - outside of a clone there is nothing to compare with


def changed_files() -> list[str]:
    """Return the paths of changed and new files, from the root of the repository."""
    base = git("merge-base", "HEAD", "main") or ["HEAD"]
    changed = git("diff", "--name-only", "--diff-filter=d", *base)
    return changed + git("ls-files", "--others", "--exclude-standard")


def names_of(path: str) -> set[str]:
    """Return the names of a module and of its packages, below the top one, without a plural's s."""
    _, _, *packages, module = Path(path).with_suffix("").parts
    return {name.strip("_").removesuffix("s") for name in (*packages, module)}


def is_named_for(test: str, names: Collection[str]) -> bool:
    """Return whether the name of a test module begins with one of the names, as a word."""
    words = test.removeprefix("test_").split("_")
    beginnings = {"_".join(words[:count]).removesuffix("s") for count in range(1, len(words) + 1)}
    return not beginnings.isdisjoint(names)


def choose(changed: Collection[str], side: str, tests: Collection[Module]) -> list[Path]:
    """Return the paths of the tests that changed themselves, then of those that are named for what
    changed in a side of the product, then of those that import it.
    """
    product = [path for path in changed if path.startswith(f"{side}/") and path.endswith(".py")]
    names = set().union(*map(names_of, product))
    imported = {".".join(Path(path).with_suffix("").parts[1:]) for path in product}
    ranks = {}
    for test in tests:
        imports = test.imports | {name.rpartition(".")[0] for name in test.imports}
        if test.path.relative_to(ROOT).as_posix() in changed:
            ranks[test.path] = 0
        elif is_named_for(test.path.stem, names):
            ranks[test.path] = 1
        elif not imported.isdisjoint(imports):
            ranks[test.path] = 2
    return sorted(ranks, key=lambda path: (ranks[path], path))


def main() -> None:
    """Print the paths, and on stderr how many are left to `make test`."""
    changed = changed_files()
    candidates: list[Path] = []
    for side, folder in FOLDERS.items():
        tests = [each for each in modules(folder) if each.path.name.startswith("test_")]
        candidates += choose(changed, side, tests)
    paths = [path.relative_to(ROOT).as_posix() for path in candidates]
    sys.stdout.write(" ".join(paths[:MODULES_MAX]) + "\n")
    if left := paths[MODULES_MAX:]:
        sys.stderr.write(f"left to `make test`: {' '.join(left)}\n")


if __name__ == "__main__":
    main()
