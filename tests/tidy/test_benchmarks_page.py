"""The benchmarks page has the figures of the history, compared with the release before."""

from __future__ import annotations

import sys

import pytest

from support.source_code import ROOT

sys.path.append(str(ROOT / "tests/benchmarks"))

import history

MACHINE = "a processor, 2 cores, 24 GiB, Python 3.11.7, load "


def measured(value, **other):
    return {
        "commit": "abc",
        "time": "2026-11-27T00:00:00Z",
        "machine": f"{MACHINE}0.1",
        "scale": 1.0,
        "only": "",
        "figures": [["time", value], ["ours : theirs", "1.10 x"]],
        **other,
    }


def test_page_has_figures_of_history():
    """After a change in `tests/benchmarks/history`: python tests/benchmarks/history.py."""
    page = history.PAGE.read_text()
    assert page == history.render(page, history.read_releases(history.HISTORY))


@pytest.mark.parametrize(
    ("other", "ratios"),
    [
        ({"machine": f"{MACHINE}9.9"}, ("2.00 x", "1.00 x")),
        ({"machine": "another, load 0.1"}, ("", "1.00 x")),
        ({"scale": 0.1}, ("", "")),
    ],
)
def test_page_compares_with_release_before(other, ratios):
    releases = {
        "0.9.0": {"old": measured("7 s")},
        "0.10.0": {"sample": measured("1,000 ms", **other)},
        "0.11.0": {"sample": measured("2,000 ms")},
    }
    page = history.render(f"a\n{history.BEGIN}gone\n{history.END}b\n", releases)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.startswith(("| time", "| ours"))
    ]
    assert rows[:1] == [["time", "7 s", ""]]
    assert rows[2:] == [["time", "2,000 ms", ratios[0]], ["ours : theirs", "1.10 x", ratios[1]]]
    assert page.startswith("a\n")
    assert page.endswith(f"{history.END}b\n")
    assert "gone" not in page


def test_versions_are_sorted_by_number(tmp_path):
    for version in ("0.10.0", "0.9.0"):
        (tmp_path / f"{version}.json").write_text("{}")
    assert list(history.read_releases(tmp_path)) == ["0.9.0", "0.10.0"]
