"""Compare two files of figures that `make bench` has written.

    python tests/benchmarks/compare.py BEFORE.json AFTER.json

Prints, of each figure that both have with the same scale, its value before and after and the ratio.
Figures of two machines are not compared: only those that are ratios themselves ("1.1 x").
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?")


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    before, after = (json.loads(Path(path).read_text()) for path in arguments)
    for name in (name for name in after if name in before):
        print(f"{name}: {before[name]['commit']} -> {after[name]['commit']}")
        if not is_comparable(before[name], after[name]):
            print("  measured at another scale, or other cases: not compared")
        for figure, old, value, ratio in compare(before[name], after[name]):
            print(f"  {figure:<66} {old:>16} {value:>16} {ratio:>8}".rstrip())
    return 0


def is_comparable(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether both measured the same cases at the same scale."""
    return (before["scale"], before["only"]) == (after["scale"], after["only"])


def compare(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, both values and ratio of each figure that can be compared."""
    if not is_comparable(before, after):
        return
    is_same_machine = name_machine(before) == name_machine(after)
    values = dict(before["figures"])
    for name, value in after["figures"]:
        old = values.get(name)
        if old is None or not (is_same_machine or value.endswith(" x")):
            continue
        numbers = [_NUMBER.search(text) for text in (old, value)]
        first, second = (float(n[0].replace(",", "")) if n else 0.0 for n in numbers)
        yield name, old, value, f"{second / first:.2f} x" if first else ""


def name_machine(measured: dict[str, Any]) -> str:
    """Return the machine without its load, which differs each time."""
    machine: str = measured["machine"]
    return machine.rpartition(", load")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
