"""Checks of accessibility by axe-core, which runs in the page: `tests/data/axe`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

AXE = Path(__file__).parent.parent / "data" / "axe" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
RUN = """async (rules) => {
  const result = await axe.run(document, { runOnly: { type: "tag", values: rules } });
  return result.violations.map(({ id, help, nodes }) => ({
    id,
    help,
    nodes: nodes.map(({ html, failureSummary }) => `${html.slice(0, 300)}: ${failureSummary}`),
  }));
}"""


@cache
def _script():
    return AXE.read_text(encoding="utf-8")


def find_problems(page):
    """Return the violations that axe-core finds in a page as it is shown now.

    The script is evaluated by the browser's debugger, which the page's CSP does not concern. The
    page needs JavaScript.
    """
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(_script())
    return page.evaluate(RUN, list(RULES))
