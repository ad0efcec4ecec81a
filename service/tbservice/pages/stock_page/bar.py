"""What we add to TensorBoard's page: a bar with the experiment's name and downloads, and a script.

TensorBoard's page does not show name, description or visibility. The bar works without the script,
which closes the menus, updates the columns of HParams and shows its errors. Text from tenants is
escaped.
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
from tbservice.pages.stock_page import download
from tbservice.pages.stock_page.attempt_choice import AttemptChoice
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbwire.points import DataClass

_BAR: Final = Template(Path(__file__).with_name("bar.html").read_text(encoding="utf-8"))
_SCRIPT: Final = (
    f"<script>{Path(__file__).with_name('page_script.js').read_text(encoding='utf-8')}</script>"
)
SCRIPT_HASH: Final = content_hash(_SCRIPT, "script")
"""Source expression for the script in the page's Content-Security-Policy (`'sha256-…'`)."""

_UNNAMED: Final = "Unnamed experiment"
_VISIBILITY_LABELS: Final = {
    Visibility.PRIVATE: ("Private", "Members of its workspace, and those who have a link, read it"),
    Visibility.LINK: (
        "Anyone with the URL",
        "Anyone who has the URL can read the experiment, without signing in",
    ),
}
_SHARED_LABEL: Final = ("Shared by link", "Everyone who has the link reads what you see here")
_FORMAT_LABELS: Final = {Format.CSV: "CSV", Format.PARQUET: "Parquet"}
_FILE_LABELS: Final = {
    DataClass.SCALAR: ("Scalars", ""),
    DataClass.TENSOR: (
        "Tensors",
        "Histograms, texts, PR curves, meshes and all other tensors",
    ),
    DataClass.BLOB_SEQUENCE: (
        "List of media",
        "Images, audio and graphs: the API address of each",
    ),
    None: (
        "Hyperparameters",
        "A row for each run that has some, with the last value of each metric",
    ),
}
"""Name and hint of each content of `download.FILES`."""


def render_bar(
    experiment: Experiment,
    about: str,
    data_classes: Collection[DataClass],
    *,
    has_hparams: bool,
    is_shared: bool,
    workspace_id: WorkspaceId | None = None,
    site: str = "",
    attempts: AttemptChoice = AttemptChoice(),  # noqa: B008 - immutable
) -> str:
    """Return bar, style and script as HTML, for insertion before the page's `<tb-webapp>`.

    Args:
        experiment: What the page shows.
        about: What people wrote about it, as `render_about` returns it.
        data_classes: Those that it has points of: each is offered for download.
        has_hparams: Whether it has hyperparameters, which are offered too.
        is_shared: Whether the reader has a share link.
        workspace_id: Its workspace if the reader is signed in as a member: the bar then links back
            to the workspace's experiments, and to our own page of this one.
        site: The public URL, where these are, if the page is on the content origin.
        attempts: Those that the runs have, and the one that the page shows.
    """
    visibility, hint = _SHARED_LABEL if is_shared else _VISIBILITY_LABELS[experiment.visibility]
    title = "Back to the start page of this experiment, without filters and pinned cards"
    name = f'<a href="./" title="{title}" dir="auto">{_shown_name(experiment)}</a>'
    badge = f'<span class="visibility" title="{html.escape(hint)}">{html.escape(visibility)}</span>'
    own_page = (
        f"{site}/experiment/{experiment.experiment_id}/about" if site else f"{attempts.up}about"
    )
    details = _render_own(own_page, "Details") if workspace_id is not None else ""
    return _render(
        _render_back(workspace_id, site or f"{attempts.up}../.."),
        name,
        badge,
        details,
        _render_attempts(attempts),
        _render_about(about),
        _render_menu({*data_classes, *((None,) if has_hparams else ())}, experiment.experiment_id),
    )


def render_comparison_bar(
    experiments: Mapping[str, Experiment],
    workspace_id: WorkspaceId | None = None,
    site: str = "",
) -> str:
    """Return the same as `render_bar` for a comparison: each experiment links to its own page.

    `experiments` are keyed by their names in the comparison, in its order. There are no downloads.
    """
    title = "Back to the start page of this comparison, without filters and pinned cards"
    return _render(
        _render_back(workspace_id, site or "../.."),
        f'<a href="./" title="{title}">Comparison</a>',
        *itertools.starmap(_render_experiment, experiments.items()),
    )


def _render_back(workspace_id: WorkspaceId | None, site: str) -> str:
    if workspace_id is None:
        return ""
    return _render_own(f"{site}/?workspace={workspace_id}", "&lsaquo; Experiments")


def _render_own(address: str, text: str) -> str:
    return f'<a class="own" href="{html.escape(address)}">{text}</a>'


def _render_attempts(attempts: AttemptChoice) -> str:
    """Return the menu of attempts; "" if all runs have one."""
    if attempts.count == 1:
        return ""
    items = "".join(_render_attempt(attempts, number) for number in range(attempts.count, 0, -1))
    menu = (
        '<div class="menu">Some runs were restarted and logged steps again. An earlier attempt '
        f"has their points from before that<ul>{items}</ul></div>"
    )
    is_earlier = " earlier" if attempts.shown < attempts.count else ""
    title = f"Attempt {attempts.shown} of {attempts.count}"
    return f'<details class="attempts{is_earlier}"><summary>{title}</summary>{menu}</details>'


def _render_attempt(attempts: AttemptChoice, number: int) -> str:
    current = ' aria-current="page"' if number == attempts.shown else ""
    link = f'<a href="{attempts.address(number)}"{current}>Attempt {number}</a>'
    return f"<li>{link}<span>{html.escape(attempts.describe(number))}</span></li>"


def _render_experiment(name: str, experiment: Experiment) -> str:
    address = f"../../experiment/{experiment.experiment_id}/"
    link = f'<a href="{address}" dir="auto">{_shown_name(experiment)}</a>'
    return f'<span class="compared"><bdi>{html.escape(name)}</bdi>: {link}</span>'


def _shown_name(experiment: Experiment) -> str:
    return html.escape(experiment.name.strip() or _UNNAMED)


def _render(*content: str) -> str:
    return _BAR.substitute(content="\n".join(filter(None, content))) + _SCRIPT


def _render_about(about: str) -> str:
    if not about:
        return ""
    region = f'<div class="about" tabindex="0" role="region" aria-label="About">{about}</div>'
    return f"<details><summary>About this experiment</summary>{region}</details>"


def _render_menu(contents: Collection[DataClass | None], experiment_id: ExperimentId) -> str:
    files = "".join(_render_files(content) for content in _FILE_LABELS if content in contents)
    command = f"tbupload export --experiment {experiment_id} --format events --output DIR"
    menu = (
        f'<div class="menu">Every point, at full resolution<ul>{files}</ul>'
        f"<p>Event files, with all media: <code>{html.escape(command)}</code></p></div>"
    )
    return f'<details class="download"><summary>Download</summary>{menu}</details>'


def _render_files(content: DataClass | None) -> str:
    name, hint = _FILE_LABELS[content]
    links = "".join(
        f'<a href="download/{file}" aria-label="{name} as {_FORMAT_LABELS[file_format]}">'
        f"{_FORMAT_LABELS[file_format]}</a>"
        for file, (of_file, file_format) in download.FILES.items()
        if of_file is content
    )
    return f'<li title="{hint}"><span>{name}</span>{links}</li>'
