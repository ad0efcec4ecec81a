"""The tables of docs/scaling.md are those that its script computes."""

from __future__ import annotations

import subprocess
import sys

from support.source_code import ROOT

SCRIPT = ROOT / "tests" / "benchmarks" / "costs.py"
PAGE = (ROOT / "docs" / "scaling.md").read_text()


def computed(*arguments):
    command = [sys.executable, SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("\n\n")


def test_tables_of_scaling_are_computed():
    for table in computed():
        assert table in PAGE


def test_costs_grow_with_users_and_prices():
    def total(*arguments):
        return float(computed(*arguments)[1].rsplit("|", 2)[1].replace(",", ""))

    assert total("--users", "2e6") > 1.9 * total()
    assert total("--object-gb", "0") < total()
