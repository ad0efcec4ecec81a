"""The address of the list of experiments: its filters and order, and links that change one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlencode

from tbservice.experiment_values import ExperimentOrder, UploadStatus
from tbservice.experiments.listing import Search
from tbservice.types.experiments import Visibility
from tbservice.types.identifiers import UserId, WorkspaceId

NO_CHART = "-"
"""The value of `chart` for a list without curves."""

STARRED: Final = "starred"
ARCHIVED: Final = "archived"
"""Values of `show`."""


@dataclass(frozen=True, slots=True)
class ListAddress:
    """Parameters in the address of a list; "" for absent ones. Unknown values are ignored."""

    workspace_id: WorkspaceId
    q: str = ""
    tag: str = ""
    by: str = ""
    visibility: str = ""
    status: str = ""
    show: str = ""
    sort: str = ExperimentOrder.CREATED.value
    is_reversed: bool = False
    chart: str = ""
    after: str = ""

    @property
    def is_filtered(self) -> bool:
        """Return whether the list may leave out experiments."""
        return any((self.q, self.tag, self.by, self.visibility, self.status, self.show))

    @property
    def clear_link(self) -> str:
        """Return the address without filters."""
        return self.link(q="", tag="", by="", visibility="", status="", show="")

    @property
    def saved_query(self) -> str:
        """Return the query that a saved search keeps: without workspace and page."""
        return urlencode({name: value for name, value in self._pairs.items() if value})

    def to_search(self, user_id: UserId | None) -> Search:
        """Return what to list for a person."""
        return Search(
            self.q,
            (self.tag,) if self.tag else (),
            UserId(self.by) if self.by else None,
            Visibility(self.visibility) if self.visibility else None,
            ExperimentOrder(self.sort),
            is_descending=(self.sort != ExperimentOrder.NAME) != self.is_reversed,
            statuses=(UploadStatus(self.status),) if self.status else (),
            starred_by=user_id if self.show == STARRED else None,
            is_archived=self.show == ARCHIVED,
        )

    @property
    def query(self) -> str:
        """Return the query of the address."""
        pairs = {"workspace": str(self.workspace_id), **self._pairs, "after": self.after}
        return urlencode({name: value for name, value in pairs.items() if value})

    @property
    def _pairs(self) -> dict[str, str]:
        return {
            "q": self.q,
            "tag": self.tag,
            "by": self.by,
            "visibility": self.visibility,
            "status": self.status,
            "show": self.show,
            "sort": "" if self.sort == ExperimentOrder.CREATED else self.sort,
            "reverse": "1" if self.is_reversed else "",
            "chart": self.chart,
        }

    def link(self, **changes: str) -> str:
        """Return the address with some values changed, of the list's first page."""
        changed = replace(self, **{"after": "", **changes})  # type: ignore[arg-type]  # texts
        return f"/?{changed.query}"

    def sort_link(self, sort: str) -> str:
        """Return the address sorted by a column: reversed if it is sorted by it already."""
        is_reversed = self.sort == sort and not self.is_reversed
        return replace(self, sort=sort, is_reversed=is_reversed).link()

    def sort_state(self, sort: str) -> str:
        """Return the `aria-sort` of a column."""
        if self.sort != sort:
            return "none"
        is_descending = (sort != ExperimentOrder.NAME) != self.is_reversed
        return "descending" if is_descending else "ascending"


def parse_address(query: Mapping[str, str], workspace_id: WorkspaceId) -> ListAddress:
    """Return what the query of an address says."""
    sort, visibility = query.get("sort", ""), query.get("visibility", "")
    status, show = query.get("status", ""), query.get("show", "")
    return ListAddress(
        workspace_id,
        _clean(query.get("q", "")),
        _clean(query.get("tag", "")),
        _clean(query.get("by", "")),
        visibility if visibility in set(Visibility) else "",
        status if status in set(UploadStatus) else "",
        show if show in {STARRED, ARCHIVED} else "",
        sort if sort in set(ExperimentOrder) else ExperimentOrder.CREATED.value,
        query.get("reverse") == "1",
        _clean(query.get("chart", "")),
        query.get("after", ""),
    )


def _clean(text: str) -> str:
    """Return a text that the database can compare."""
    return text.replace("\0", "").strip()[:200]
