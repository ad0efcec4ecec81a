"""Reports of shared pages, as plain values."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import NamedTuple


class ReportReason(enum.StrEnum):
    """Reasons for which a page can be reported."""

    PRIVATE_DATA = "private_data"
    ILLEGAL = "illegal"
    DECEPTION = "deception"
    COPYRIGHT = "copyright"
    OFFENSIVE = "offensive"
    OTHER = "other"


class PageReport(NamedTuple):
    """A report of a page that is shared; texts are a stranger's.

    `link_id` is the share link by which it was read, `user_id` who was signed in, `contact` where
    they want an answer; each may be empty. `closed_at` is None while it is open.
    """

    report_id: str
    workspace_id: int
    experiment_id: str
    link_id: str
    reported_at: datetime
    network: str
    user_id: str
    reason: ReportReason
    details: str
    contact: str
    closed_at: datetime | None
    note: str
