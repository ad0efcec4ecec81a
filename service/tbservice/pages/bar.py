"""What we add to TensorBoard's page: a slim bar that names the experiment and has its data to download, and a script.

The page itself never shows name, description or visibility. The bar is text and links of ours, and works without the
script, which closes its menus and keeps HParams up to date: what a tenant wrote is escaped.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from string import Template
from typing import Final

from tbservice.api.formats import Format
from tbservice.api.http.security_headers import content_hash
from tbservice.pages import download
from tbservice.types import DataClass, Experiment, Visibility

_BAR: Final = Template(Path(__file__).with_name("bar.html").read_text(encoding="utf-8"))
_SCRIPT: Final = (
    f"<script>{Path(__file__).with_name('page_script.js').read_text(encoding='utf-8')}</script>"
)
SCRIPT_HASH: Final = content_hash(_SCRIPT, "script")
"""What the page's Content-Security-Policy calls the script."""

_UNNAMED: Final = "Unnamed experiment"
_VISIBILITY_LABELS: Final = {
    Visibility.PRIVATE: ("Private", "Only with a token or a share link"),
    Visibility.LINK: (
        "Anyone with the address",
        "Whoever knows this address may read it, without a token",
    ),
}


_FORMAT_LABELS: Final = {Format.CSV: "CSV", Format.PARQUET: "Parquet"}
_DATA_CLASS_LABELS: Final = {
    DataClass.SCALAR: ("Scalars", ""),
    DataClass.TENSOR: (
        "Tensors",
        "Histograms, texts, PR curves, meshes and whatever else is a tensor",
    ),
    DataClass.BLOB_SEQUENCE: (
        "List of media",
        "Images, audio and graphs: the address at which the API has each of them",
    ),
}


def render_bar(experiment: Experiment, data_classes: Collection[DataClass]) -> str:
    """Bar and script as HTML, to stand before the page's own element; with the style that makes room for the bar.

    There are points of these data classes to download.
    """
    visibility, hint = _VISIBILITY_LABELS[experiment.visibility]
    title = "Back to how this experiment opens, without filters and pinned cards"
    name = f'<a href="./" title="{title}" dir="auto">{_shown_name(experiment)}</a>'
    badge = f'<span class="visibility" title="{html.escape(hint)}">{html.escape(visibility)}</span>'
    return _render(
        name, badge, _render_description(experiment.description.strip()), _render_menu(data_classes)
    )


def render_comparison_bar(experiments: Mapping[str, Experiment]) -> str:
    """As `render_bar`, for experiments by the names they have in the comparison; each links to its own page."""
    title = "Back to how this comparison opens, without filters and pinned cards"
    return _render(
        f'<a href="./" title="{title}">Comparison</a>',
        *itertools.starmap(_render_experiment, experiments.items()),
    )


def _render_experiment(name: str, experiment: Experiment) -> str:
    link = f'<a href="../../experiment/{experiment.experiment_id}/" dir="auto">{_shown_name(experiment)}</a>'
    return f'<span class="compared"><bdi>{html.escape(name)}</bdi>: {link}</span>'


def _shown_name(experiment: Experiment) -> str:
    return html.escape(experiment.name.strip() or _UNNAMED)


def _render(*content: str) -> str:
    return _BAR.substitute(content="\n".join(content)) + _SCRIPT


def _render_description(description: str) -> str:
    if not description:
        return ""
    about = f'<div class="about" dir="auto" tabindex="0" role="region" aria-label="About">{html.escape(description)}</div>'
    return f"<details><summary>About this experiment</summary>{about}</details>"


def _render_menu(data_classes: Collection[DataClass]) -> str:
    files = "".join(
        _render_files(data_class) for data_class in _DATA_CLASS_LABELS if data_class in data_classes
    )
    menu = f'<div class="menu">Every point, at full resolution<ul>{files}</ul></div>'
    return f'<details class="download"><summary>Download</summary>{menu}</details>'


def _render_files(data_class: DataClass) -> str:
    name, hint = _DATA_CLASS_LABELS[data_class]
    links = "".join(
        f'<a href="download/{file}" aria-label="{name} as {_FORMAT_LABELS[chosen]}">{_FORMAT_LABELS[chosen]}</a>'
        for file, (of, chosen) in download.FILES.items()
        if of is data_class
    )
    return f'<li title="{hint}"><span>{name}</span>{links}</li>'
