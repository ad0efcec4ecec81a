"""What we add to TensorBoard's page: a slim bar that names the experiment, and a script that keeps HParams up to date.

The page itself never shows name, description or visibility. The bar is text and a link of ours, without any script:
what a tenant wrote is escaped.
"""

from __future__ import annotations

import html
from pathlib import Path
from string import Template
from typing import Final

from tbservice.tensorboard.notices import content_hash
from tbservice.types import Experiment, Visibility

_BAR: Final = Template(Path(__file__).with_name("bar.html").read_text(encoding="utf-8"))
_SCRIPT: Final = f"<script>{Path(__file__).with_name('page_script.js').read_text(encoding='utf-8')}</script>"
SCRIPT_HASH: Final = content_hash(_SCRIPT, "script")
"""What the page's Content-Security-Policy calls the script."""

_UNNAMED: Final = "Unnamed experiment"
_VISIBILITIES: Final = {
    Visibility.PRIVATE: ("Private", "Only with a token or a share link"),
    Visibility.LINK: ("Anyone with the address", "Whoever knows this address may read it, without a token"),
}


def render_bar(experiment: Experiment) -> str:
    """Bar and script as HTML, to stand before the page's own element; with the style that makes room for the bar."""
    visibility, hint = _VISIBILITIES[experiment.visibility]
    bar = _BAR.substitute(
        name=html.escape(experiment.name.strip() or _UNNAMED),
        visibility=html.escape(visibility),
        visibility_hint=html.escape(hint),
        description=_render_description(experiment.description.strip()),
    )
    return bar + _SCRIPT


def _render_description(description: str) -> str:
    if not description:
        return ""
    about = (
        f'<div class="about" dir="auto" tabindex="0" role="region" aria-label="About">{html.escape(description)}</div>'
    )
    return f"<details><summary>About this experiment</summary>{about}</details>"
