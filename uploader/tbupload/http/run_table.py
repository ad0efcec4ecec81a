"""The call of the API that reads the table of runs of a workspace."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tbupload.errors import UsageError
from tbupload.http.account import AccountClient
from tbupload.http.json_calls import JsonCalls
from tbupload.http.response_schema import (
    Json,
    array,
    boolean,
    integer,
    mapping,
    plain,
    record,
    string,
)
from tbupload.http.transport import Transport

_PAGE_ITEMS: Final = 1_000
"""Runs of a page at most; the server has the same limit."""

_RUNS_PAGE: Final = record(
    {
        "runs": array(mapping(plain)),
        "columns": array(string),
        "total": integer(),
        "pending": integer(),
        "left_out": boolean,
    },
    rest=plain,
)

_CURVES: Final = record({"columns": array(string), "groups": array(mapping(plain))}, rest=plain)


def find_workspace_id(transport: Transport) -> int:
    """Return the workspace of the token. Raises UsageError if it has none."""
    workspace = AccountClient(transport).get_me()["workspace"]
    if workspace is None:
        raise UsageError("the token is of no workspace: use one that may list experiments")
    return int(workspace["workspace_id"])


class RunTableCalls(JsonCalls):
    """Reads the table of one workspace."""

    def __init__(self, transport: Transport, workspace_id: int) -> None:
        super().__init__(transport)
        self._path = f"/api/v1/workspaces/{workspace_id}/runs"

    def read_pages(
        self,
        where: str = "",
        sort: Sequence[str] = (),
        columns: Sequence[str] = (),
        *,
        count_max: int = _PAGE_ITEMS,
        available: bool = False,
        group_by: Sequence[str] = (),
        run_pattern: str | None = None,
    ) -> Iterator[Json]:
        """Yield pages: {runs, columns, total, pending, left_out}; at least one.

        Args:
            where: The filter; docs/runs.md.
            sort: Columns to sort by, with `-` before one descending.
            columns: Columns of each run; none for those that most runs have.
            count_max: Runs that are needed.
            available: Whether pages also have `available`, the columns that there are.
            group_by: Columns to group by: pages then have groups, and `grouped`, their columns.
            run_pattern: A regular expression whose group names the group of a run.
        """
        query = {
            "where": where,
            "sort": sort,
            "column": columns,
            **_group_query(group_by, run_pattern),
            "limit": str(min(count_max, _PAGE_ITEMS)),
            "available": "true" if available else "false",
        }
        return self._get_pages(self._path, query, _RUNS_PAGE)

    def read_curves(
        self,
        metric: str,
        where: str = "",
        group_by: Sequence[str] = (),
        run_pattern: str | None = None,
        query: Mapping[str, Any] = MappingProxyType({}),
    ) -> Json:
        """Return the curves of groups of runs: {metric, columns, groups}; docs/runs.md.

        `query` has more parameters of the API, of which None are left out.
        """
        fields = {"metric": metric, "where": where, **_group_query(group_by, run_pattern)}
        for name, value in query.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            fields[name] = [str(each) for each in values if each is not None]
        address = f"{self._path}/curves?{urllib.parse.urlencode(fields, doseq=True)}"
        return self._transport.request("GET", address).json(_CURVES)


def _group_query(
    group_by: Sequence[str], run_pattern: str | None
) -> dict[str, str | Sequence[str]]:
    pattern = {} if run_pattern is None else {"run_pattern": run_pattern}
    return {"group_by": group_by, **pattern}
