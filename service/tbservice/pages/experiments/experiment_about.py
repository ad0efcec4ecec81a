"""Our own pages that show an experiment: curves first; downloads; who may read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from fastapi import APIRouter, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase, get_settings
from tbservice.api.http.security_headers import PUBLISHED
from tbservice.auth import members, people
from tbservice.db.database import Database
from tbservice.errors import Forbidden
from tbservice.experiment_values import ExperimentNotes, UploadRecord
from tbservice.experiments import lifecycle, snapshots, uploads
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.markdown import render_markdown
from tbservice.pages.base.person_page import PersonPage
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import MaybeSignedIn
from tbservice.pages.experiments.chart_cards import (
    ChartSource,
    parse_charts_address,
    read_experiment_charts,
)
from tbservice.pages.experiments.experiment_reader import PageReader, find_reader
from tbservice.pages.people.workspace_runs import show_value
from tbservice.pages.sharing.experiment_tokens import tokens_context
from tbservice.pages.sharing.share_page import links_context
from tbservice.pages.stock_page import link_preview, page_auth
from tbservice.reading import catalog, console
from tbservice.runs.experiment_table import list_first_runs
from tbservice.types.experiments import Experiment
from tbservice.types.grants import AdminGrant
from tbservice.types.sampling import Selection
from tbwire.points import DataClass

router = APIRouter(prefix="/experiment/{experiment_id}", include_in_schema=False)

IMAGES_ITEMS_MAX: Final = 12
"""Series of images (items) on an experiment's page, those that were uploaded first."""

_MEMBERS_SHOWN: Final = 30
_UPLOADS_SHOWN: Final = 20


@router.get("/about")
def show_about(
    request: Request, experiment_id: str, session: MaybeSignedIn, database: UsesDatabase
) -> Response:
    """Show an experiment to everybody who may read it, as far as they may.

    With `?token=`, as links of the content origin have it, redirect to the address without it: the
    token is then in the page's cookie. Programs that show previews of links get theirs.
    """
    preview = link_preview.find_preview(request)
    if preview is not None:
        return preview
    if offered := request.query_params.getlist("token"):
        response = redirect(f"/experiment/{experiment_id}/about")
        page_auth.set_read_cookie(response, request, offered)
        return response
    reader = find_reader(request, experiment_id, session, database)
    address = parse_charts_address(f"/experiment/{experiment_id}/about", request.query_params)
    grant = reader.grant
    with database.snapshot(grant) as db:
        experiment, context = _describe(db, reader)
        notes = lifecycle.get_notes(db, experiment)
        table = list_first_runs(db, grant, experiment, limits.LIST_PAGE_ITEMS)
        context |= {
            "images": _list_images(db, reader),
            "table": table,
            "charts": read_experiment_charts(db, ChartSource(grant, reader.token), address),
            "description": render_markdown(experiment.description),
            "notes": render_markdown(notes.notes),
            "properties": notes.properties,
            "runs": table.total,
            "plugins": catalog.list_plugins(db, grant),
            **_describe_people(db, reader, experiment, notes),
        }
        search = request.query_params.get("console", "").strip()
        context["console"] = _read_console(db, reader, context["uploads"], search)
    context |= _administer(request, database, reader, session, links_context)
    context["public_url"] = get_settings(request).public_url.rstrip("/")
    response = render(request, "experiment.html", **context, show=show_value)
    if context["is_published"]:
        response.headers.update(PUBLISHED)
    return response


@router.get("/downloads")
def show_downloads(
    request: Request, experiment_id: str, session: MaybeSignedIn, database: UsesDatabase
) -> Response:
    """Show what can be downloaded of an experiment."""
    reader = find_reader(request, experiment_id, session, database)
    with database.snapshot(reader.grant) as db:
        _, context = _describe(db, reader)
    context |= _administer(request, database, reader, session, lambda _db, _grant: {})
    return render(request, "experiment_downloads.html", **context)


@router.get("/access")
def show_access(
    request: Request, experiment_id: str, session: MaybeSignedIn, database: UsesDatabase
) -> Response:
    """Show members who can read an experiment, and those who may change it its tokens."""
    reader = find_reader(request, experiment_id, session, database)
    if reader.membership is None:
        raise Forbidden("this page is for members of the experiment's workspace")
    with database.snapshot(reader.grant) as db:
        _, context = _describe(db, reader)
        seen_by = members.list_members(db, reader.grant)
    context |= {
        "members": seen_by[:_MEMBERS_SHOWN],
        "more_members": len(seen_by) - _MEMBERS_SHOWN,
        **_administer(request, database, reader, session, tokens_context),
    }
    return render(request, "experiment_access.html", **context)


def _describe(db: Connection, reader: PageReader) -> tuple[Experiment, dict[str, Any]]:
    """Return the experiment, and what the head of each of its pages shows."""
    experiment = lifecycle.get_experiment(db, reader.grant)
    return experiment, {
        "experiment": experiment,
        "workspace": reader.membership,
        "is_shared": reader.grant.link is not None,
        "is_archived": lifecycle.is_archived(db, reader.grant, experiment),
        "is_published": lifecycle.is_published(db, experiment),
        "is_kept_copy": False,
        "upload_status": uploads.find_status(db, reader.grant, experiment),
    }


def _list_images(db: Connection, reader: PageReader) -> dict[str, Any] | None:
    """Return what the script needs to show the last image of the first series; None without any."""
    selection = Selection(plugin="images", data_class=DataClass.BLOB_SEQUENCE)
    listed, _ = catalog.list_series_page(db, reader.grant, selection, "", IMAGES_ITEMS_MAX)
    names = [{"run": series.run, "tag": series.tag} for series in listed]
    source = {"id": reader.grant.experiment_id, "token": reader.token}
    return {**source, "images": names} if names else None


def _describe_people(
    db: Connection, reader: PageReader, experiment: Experiment, notes: ExperimentNotes
) -> dict[str, Any]:
    """Return what only members see: who made the experiment, and where."""
    if reader.membership is None:
        return {"origin": {}, "uploads": [], "more_uploads": False, "creator": None}
    creator = experiment.created_by
    recorded, following = uploads.list_uploads(db, reader.grant, None, _UPLOADS_SHOWN)
    return {
        "origin": {} if recorded else notes.origin,
        "uploads": recorded,
        "more_uploads": following is not None,
        "creator": None if creator is None else people.find_person(db, creator),
    }


def _read_console(
    db: Connection, reader: PageReader, recorded: Sequence[UploadRecord], search: str
) -> dict[str, Any] | None:
    """Return the console of the first upload that has one: lines that contain `search`."""
    for upload in recorded:
        if upload.origin.get("console"):
            search = search[: console.SEARCH_CHARS_MAX]
            read = console.read_lines(db, reader.grant, upload, search)
            return {"upload": upload, "lines": read.lines, "total": read.total, "search": search}
    return None


def _administer(
    request: Request,
    database: Database,
    reader: PageReader,
    session: PersonSession | None,
    make: Callable[[Connection, AdminGrant], dict[str, Any]],
) -> dict[str, Any]:
    """Return `may_change`, and where it is true what `make` returns for who may change it."""
    if session is None or not reader.may_change:
        return {"may_change": False}
    page = PersonPage(request, session, database)
    try:
        with page.admin_transaction(reader.grant.experiment_id) as (db, grant):
            copies = snapshots.count_copies(db, grant)
            return {"may_change": True, "frozen_copies": copies, **make(db, grant)}
    except Forbidden:  # a frozen copy, which nobody may change
        with suppress(Forbidden):
            page.grant_admin(reader.grant.experiment_id, allows_kept_copy=True)
            return {"may_change": False, "is_kept_copy": True}
        return {"may_change": False}
