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
        for line in compare(before[name], after[name]):
            print(f"  {line}")
    return 0


def compare(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each figure that can be compared."""
    if (before["scale"], before["only"]) != (after["scale"], after["only"]):
        yield "measured at another scale, or other cases: not compared"
        return
    is_same_machine = _name_machine(before) == _name_machine(after)
    values = dict(before["figures"])
    for name, value in after["figures"]:
        old = values.get(name)
        if old is None or not (is_same_machine or value.endswith(" x")):
            continue
        numbers = [_NUMBER.search(text) for text in (old, value)]
        first, second = (float(n[0].replace(",", "")) if n else 0.0 for n in numbers)
        ratio = f"{second / first:.2f} x" if first else ""
        yield f"{name:<66} {old:>16} {value:>16} {ratio:>8}".rstrip()


def _name_machine(measured: dict[str, Any]) -> str:
    """Return the machine without its load, which differs each time."""
    machine: str = measured["machine"]
    return machine.rpartition(", load")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
