"""Additions to TensorBoard's page: a bar with the experiment's name and downloads, and a script.

TensorBoard's page does not show name, description or visibility. The bar works without the script,
which closes the menus, updates the columns of HParams and shows its errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from tbservice.api.formats import Format
from tbservice.api.http.security_headers import content_hash
from tbservice.pages.base.templates import TEMPLATES
from tbservice.pages.stock_page import download
from tbservice.pages.stock_page.attempt_choice import AttemptChoice
from tbservice.runs.grouped_reader import GroupsQuery
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import WorkspaceId
from tbwire.points import DataClass

_SCRIPT: Final = (
    f"<script>{Path(__file__).with_name('page_script.js').read_text(encoding='utf-8')}</script>"
)
SCRIPT_HASH: Final = content_hash(_SCRIPT, "script")
"""Source expression for the script in the page's Content-Security-Policy (`'sha256-…'`)."""

UP_FROM_GROUPS: Final = "../../"
"""From the page of groups to that of the comparison that they are of."""

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
    about: Markup,
    data_classes: Collection[DataClass],
    *,
    has_hparams: bool,
    is_shared: bool,
    workspace_id: WorkspaceId | None = None,
    site: str = "",
    link_token: str = "",
    attempts: AttemptChoice = AttemptChoice(),  # noqa: B008 - immutable
) -> str:
    """Return bar, style and script as HTML, for insertion before the page's `<tb-webapp>`.

    Args:
        experiment: Experiment that the page shows.
        about: HTML of description, notes, tags and properties, from `render_about`.
        data_classes: Data classes that it has points of: each is offered for download.
        has_hparams: Whether it has hyperparameters, which are offered too.
        is_shared: Whether the reader has a share link.
        workspace_id: Its workspace if the reader is signed in as a member: the bar then links back
            to the workspace's experiments.
        site: The public URL, where these and our own page of the experiment are, if the page is on
            the content origin.
        link_token: The reader's token, which the link to our own page there takes along.
        attempts: Attempts of the runs, and the one that the page shows.
    """
    visibility, hint = _SHARED_LABEL if is_shared else _VISIBILITY_LABELS[experiment.visibility]
    own_page = (
        f"{site}/experiment/{experiment.experiment_id}/about" if site else f"{attempts.up}about"
    )
    report_page = "" if workspace_id is not None else own_page.removesuffix("about") + "report"
    if site and link_token:
        own_page += f"?token={link_token}"
        report_page = report_page and f"{report_page}?token={link_token}"
    contents = {*data_classes, *((None,) if has_hparams else ())}
    return _render(
        "experiment_bar.html",
        _back_address(workspace_id, site or f"{attempts.up}../.."),
        shown_name=_shown_name(experiment),
        visibility=visibility,
        hint=hint,
        own_page=own_page,
        report_page=report_page,
        may_leave_link=is_shared and workspace_id is not None and not site,
        attempts=attempts,
        about=about,
        downloads=[(_FILE_LABELS[each], _files(each)) for each in _FILE_LABELS if each in contents],
        experiment_id=experiment.experiment_id,
    )


def render_comparison_bar(
    experiments: Mapping[str, Experiment],
    workspace_id: WorkspaceId | None = None,
    site: str = "",
    groups: GroupsQuery | None = None,
) -> str:
    """Return the same as `render_bar` for a comparison: each experiment links to its own page.

    `experiments` are keyed by their names in the comparison, in its order. There are no downloads.
    With `groups`, the page shows these of their runs.
    """
    up = "../.." if groups is None else f"{UP_FROM_GROUPS}../.."
    where = " or ".join(f'experiment = "{each.experiment_id}"' for each in experiments.values())
    runs_page = f"{site or up}/workspace/{workspace_id}/runs"
    if groups is None:
        page = f"{runs_page}/compare?{urlencode({'where': where})}"
    else:
        names = ", ".join(groups.columns)
        query = {"where": groups.where or where, "group": names, "pattern": groups.pattern or ""}
        page = f"{runs_page}?{urlencode({key: each for key, each in query.items() if each})}"
    return _render(
        "comparison_bar.html",
        _back_address(workspace_id, site or up),
        own_page="" if workspace_id is None else page,
        groups=groups,
        up=up,
        experiments={
            name: (experiment.experiment_id, _shown_name(experiment))
            for name, experiment in experiments.items()
        },
    )


def _back_address(workspace_id: WorkspaceId | None, site: str) -> str:
    return "" if workspace_id is None else f"{site}/?workspace={workspace_id}"


def _shown_name(experiment: Experiment) -> str:
    return experiment.name.strip() or _UNNAMED


def _files(content: DataClass | None) -> dict[str, str]:
    """Return the format of each file with this content, by the file's name."""
    return {
        file: _FORMAT_LABELS[file_format]
        for file, (of_file, file_format) in download.FILES.items()
        if of_file is content
    }


def _render(template: str, back: str, **context: Any) -> str:
    return TEMPLATES.render(f"stock_page/{template}", back=back, **context) + _SCRIPT
