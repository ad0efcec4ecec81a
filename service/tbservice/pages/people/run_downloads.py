"""The table of the page of runs as a file."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.formats.record_tables import make_table_of
from tbservice.api.formats.table_response import respond_table
from tbservice.errors import NotFound
from tbservice.pages.people.workspace_runs import (
    ALWAYS,
    FILES,
    fill_summaries,
    find_groups,
    read_address,
)
from tbservice.pages.people.workspace_view import OwnPage
from tbservice.runs.arrow_columns import encode_groups, encode_runs
from tbservice.runs.use_cases import read_table

router = APIRouter(include_in_schema=False)


@router.get("/workspace/{workspace_id}/runs/download/{file}")
def download_table(page: OwnPage, request: Request, file: str) -> Response:
    """Return all rows of the table of an address as a file, the chosen columns or most runs' ones.

    Raises NotFound for another file, and as `list_runs` and `list_groups`.
    """
    if file not in FILES:
        raise NotFound(f"there is no such file to download; the files are {', '.join(FILES)}")
    address = read_address(page, request.query_params)
    if address.group_by:
        groups = find_groups(page, address)
        return respond_table(FILES[file], lambda: make_table_of(encode_groups(groups)), file)
    grant = page.grant_read()
    query = address.to_query(always=(*ALWAYS, *address.pinned_names))
    with page.database.snapshot(grant) as db:
        table = read_table(db, grant, query)
    fill_summaries(request, table.pending_grants)
    return respond_table(FILES[file], lambda: make_table_of(encode_runs(table)), file)
