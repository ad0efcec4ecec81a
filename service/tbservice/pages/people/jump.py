"""Names that Ctrl-K finds while one types, for the script of our own pages alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.pages.base.person_page import PersonPage
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import ScriptOfSignedIn, answer_script
from tbservice.pages.base.templates import clip
from tbservice.pages.experiments.experiment_list import find_workspace
from tbservice.runs.places import (
    PLACE_ITEMS_MAX,
    Places,
    RunPlace,
    contains_words,
    find_places,
    split_words,
)
from tbservice.types.grants import Scope
from tbservice.types.identifiers import WorkspaceId

TYPED_CHARS_MAX: Final = 200
"""Characters that are looked for; further ones are ignored."""

TYPED_CHARS_MIN: Final = 2
"""Characters from which on the script asks, and gets an answer."""

_NAME_CHARS: Final = 200
router = APIRouter(include_in_schema=False)

_Item = dict[str, str]


@router.get("/jump")
def find(request: Request, session: ScriptOfSignedIn, database: UsesDatabase) -> Response:
    """Return what the words of `q` lead to, as `{"groups": [{"label", "items"}]}`.

    Items have `text`, `href`, and `detail`, which may be empty. It is no part of the API: the
    script of this version of the pages reads it.
    """
    query = request.query_params
    typed = query.get("q", "").replace("\0", "").strip()[:TYPED_CHARS_MAX]
    open_id = query.get("experiment", "").replace("\0", "")
    membership = find_workspace(query, session)
    groups: list[dict[str, Any]] = []
    if len(typed) >= TYPED_CHARS_MIN:
        groups = [_group("Workspaces", _workspaces(session, typed))]
        if membership is not None:
            workspace_id = membership.workspace_id
            page = PersonPage(request, session, database)
            grant = page.grant_workspace(Scope.READ, workspace_id)
            with database.snapshot(grant) as db:
                places = find_places(db, grant, typed, open_id)
            groups = [*_list_groups(places, workspace_id), *groups]
            groups.append(_group("Search", _searches(workspace_id, typed)))
    return answer_script({"groups": [each for each in groups if each["items"]]})


def _group(label: str, items: Iterable[_Item]) -> dict[str, Any]:
    return {"label": label, "items": list(items)}


def _item(text: str, href: str, detail: str = "") -> _Item:
    return {"text": clip(text, _NAME_CHARS), "href": href, "detail": clip(detail, _NAME_CHARS)}


def _list_groups(places: Places, workspace_id: WorkspaceId) -> Iterator[dict[str, Any]]:
    here = f"/workspace/{workspace_id}"
    yield _group(
        "Experiments",
        (
            _item(each.name.strip() or "Unnamed experiment", _about(each.experiment_id))
            for each in places.experiments
        ),
    )
    yield _group("Runs", (_name_item(each, "run") for each in places.runs))
    yield _group("Tags of this experiment", (_name_item(each, "tag") for each in places.tags))
    yield _group(
        "Tags of experiments", (_item(tag, _list(workspace_id, tag=tag)) for tag in places.labels)
    )
    yield _group(
        "Saved searches",
        (_item(each.name, f"{_list(workspace_id)}&{each.query}") for each in places.searches),
    )
    views = (_item(each.name, f"{here}/view/{each.view_id}") for each in places.views)
    yield _group("Views", views)


def _name_item(place: RunPlace, parameter: str) -> _Item:
    query = urlencode({parameter: place.name[:_NAME_CHARS]})
    detail = place.experiment.name.strip() if parameter == "run" else ""
    address = f"{_about(place.experiment.experiment_id)}?{query}"
    return _item(place.name or "(no name)", address, detail)


def _workspaces(session: PersonSession, typed: str) -> Iterator[_Item]:
    words = split_words(typed)
    named = [each for each in session.memberships if contains_words(each.workspace_name, words)]
    for each in named[:PLACE_ITEMS_MAX]:
        yield _item(each.workspace_name, _list(each.workspace_id))


def _searches(workspace_id: WorkspaceId, typed: str) -> Iterator[_Item]:
    yield _item(f"Experiments with “{typed}”", _list(workspace_id, q=typed))
    # Quoted for RE2, then as a text of the filter.
    pattern = json.dumps(f"(?i){re.escape(typed)}", ensure_ascii=False)
    where = urlencode({"where": f"run ~ {pattern}"})
    yield _item(f"Runs with “{typed}” in their names", f"/workspace/{workspace_id}/runs?{where}")


def _about(experiment_id: str) -> str:
    return f"/experiment/{experiment_id}/about"


def _list(workspace_id: WorkspaceId, **query: str) -> str:
    return f"/?{urlencode({'workspace': str(workspace_id), **query})}"
