"""Checks of accessibility by axe-core, which runs in the page: `tests/data/axe`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

AXE = Path(__file__).parent.parent / "data" / "axe" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
LOOKS = ("color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size")
"""Rules about colours and sizes; all others are about what elements a page has."""

RUN = """async (runOnly) => {
  const result = await axe.run(document, { runOnly, resultTypes: ["violations"] });
  return result.violations.map(({ id, help, nodes }) => ({
    id,
    help,
    nodes: nodes.map(({ html, failureSummary }) => `${html.slice(0, 300)}: ${failureSummary}`),
  }));
}"""


@cache
def _script():
    return AXE.read_text(encoding="utf-8")


def find_problems(page, *, is_structure_known=False):
    """Return the violations that axe-core finds in a page as it is shown now, by the rules of LOOKS
    alone if the same page was seen with other colours or in another size before.

    The script is evaluated by the browser's debugger, which the page's CSP does not concern. The
    page needs JavaScript.
    """
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(_script())
    if is_structure_known:
        return page.evaluate(RUN, {"type": "rule", "values": list(LOOKS)})
    return page.evaluate(RUN, {"type": "tag", "values": list(RULES)})
