"""Receipts of deletion: `/workspace/{id}/receipts`, for owners."""

from __future__ import annotations

import json

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesSettings
from tbservice.audit.receipts import list_receipts
from tbservice.audit.signatures import sign
from tbservice.errors import NotFound
from tbservice.pages.people.workspace_view import OwnPage, parse_workspace_id

_PAGE_ITEMS = 100

router = APIRouter(prefix="/workspace/{workspace_id}/receipts", include_in_schema=False)


@router.get("")
def show_receipts(page: OwnPage, settings: UsesSettings, after: str = "") -> Response:
    """Show what was erased, and when it was gone, the last first, in pages."""
    with page.owner_transaction() as (db, grant):
        receipts, next_page = list_receipts(db, grant, after or None, _PAGE_ITEMS)
    shown = [
        (each, each.to_json(None), each.backups_until(settings.backup_keep_days))
        for each in receipts
    ]
    return page.render("workspace_receipts.html", receipts=shown, next_page=next_page)


@router.get("/{number}")
def download_receipt(page: OwnPage, settings: UsesSettings, number: str) -> Response:
    """Return a receipt as a JSON file, by the number of its record."""
    record = parse_workspace_id(number)  # digits, as many as an identifier has
    with page.owner_transaction() as (db, grant):
        found = [] if record is None else list_receipts(db, grant, str(record + 1), 1)[0]
    if not found or found[0].erased.number != record:
        raise NotFound("there is no such receipt")
    erased = found[0].erased
    of_part = "" if found[0].kind == "experiment" else f"-{found[0].kind}-{erased.number}"
    name = f"receipt-{erased.object_id}{of_part}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    stated = found[0].to_json(settings.backup_keep_days)
    content = json.dumps(sign(stated, settings.receipt_keys, settings.public_url), indent=2)
    return Response(content, 200, headers, "application/json")
