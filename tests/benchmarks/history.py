"""Write the figures of each release's last run into docs/benchmarks.md.

    python tests/benchmarks/history.py

Reads the files `history/VERSION.json`, which `make bench ARGS="… --json FILE"` writes before a
release. Of each benchmark, the figures of the last release that has them are shown, with their
ratio to the release before that measured the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compare import compare, is_comparable

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
HISTORY = Path(__file__).parent / "history"
BEGIN = "<!-- written by tests/benchmarks/history.py -->\n"
END = "<!-- end of what history.py writes -->\n"

Releases = Mapping[str, Mapping[str, Any]]
"""Content of the files by version, the oldest first."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(PAGE.read_text(), read_releases(HISTORY)))


def read_releases(directory: Path) -> Releases:
    """Return the content of the files of a directory, by version."""
    files = sorted(
        directory.glob("*.json"), key=lambda file: [int(part) for part in file.stem.split(".")]
    )
    return {file.stem: json.loads(file.read_text()) for file in files}


def render(page: str, releases: Releases) -> str:
    """Return the page with the tables of these releases between its two marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    names = dict.fromkeys(name for release in releases.values() for name in release)
    return (
        head + begin + "".join(f"\n{_render_table(name, releases)}" for name in names) + end + tail
    )


def _render_table(name: str, releases: Releases) -> str:
    version, *earlier = [version for version in reversed(releases) if name in releases[version]]
    measured = releases[version][name]
    before = next((each for each in earlier if is_comparable(releases[each][name], measured)), None)
    ratios = (
        {figure: ratio for figure, _, _, ratio in compare(releases[before][name], measured)}
        if before
        else {}
    )
    return "".join(f"{line}\n" for line in _list_lines(name, version, before, measured, ratios))


def _list_lines(
    name: str,
    version: str,
    before: str | None,
    measured: Mapping[str, Any],
    ratios: Mapping[str, str],
) -> Iterator[str]:
    only = f" --only '{measured['only']}'" if measured["only"] else ""
    yield f'`make bench ARGS="{name} --scale {measured["scale"]:g}{only}"`'
    yield f"({measured['commit']}, {measured['time'][:10]}; {measured['machine']}):"
    yield ""
    yield f"| {name} | {version} | compared with {before or 'the release before'} |"
    yield "|---|---|---|"
    for figure, value in measured["figures"]:
        yield f"| {figure.replace('|', '/')} | {value} | {ratios.get(figure, '')} |".replace(
            "  |", " |"
        )
    yield ""


if __name__ == "__main__":
    main()
