"""Views that replace the tables in the transactions of a share link's readers.

The schema `link_views` has a view, of the same name and columns, for each table that readers need.
A transaction that has only this schema in its `search_path` reads the views, by the same statements
as others read the tables. A table without a view does not exist there: what is new is hidden until
somebody decides otherwise. Names are matched here, since PostgreSQL has no RE2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice.db.pipeline import PendingResult, execute_binary, pipeline, set_locals
from tbservice.db.suspensions import select_suspension
from tbservice.errors import Unauthenticated
from tbservice.patterns import PatternSearches
from tbservice.types.grants import LinkView
from tbservice.types.identifiers import ExperimentId
from tbservice.types.suspensions import Suspension

_ALL: Final = "*"
"""The setting that shows all runs, or all tags; any other is an array of ids, and "" shows none."""

_IS_VALID: Final = """
    SELECT {suspension} FROM tokens AS t WHERE token_id = %(token_id)s AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > now())
"""
_SUBJECTS: Final = (
    "'workspace/' || t.workspace_id",
    "'link/' || t.token_id",
    "'experiment/' || t.experiment_id",
)
_RUNS: Final = "SELECT run_id, name FROM runs WHERE experiment_id = %(experiment_id)s"
_TAGS: Final = "SELECT tag_id, name FROM tags WHERE experiment_id = %(experiment_id)s"

_HIDE_TABLES: Final = "SELECT set_config('search_path', 'link_views', true)"


def enter(db: Connection, experiment_id: ExperimentId, link: LinkView) -> None:
    """Restrict a transaction that has just begun to what the link shows now.

    New runs and tags that match are shown by the next transaction.

    Raises:
        Unauthenticated: The link has expired or was revoked.
        Suspended: The link, or its workspace, is suspended.
        TooLarge: Matching the names would take more than `PATTERN_STEPS_MAX` steps.
    """
    is_valid = _IS_VALID.format(suspension=select_suspension(db, *_SUBJECTS))
    with pipeline(db):
        valid = execute_binary(db, is_valid, {"token_id": link.token_id})
        names = _request_names(db, experiment_id, link)
    # Checked in the transaction itself: a link that was revoked since the look-up shows nothing.
    rows = valid.rows()
    if not rows:
        raise Unauthenticated("this link has expired or was revoked")
    if suspension := Suspension.parse(rows[0][0]):
        raise suspension.as_error()
    if link.is_restricted:
        _show(db, link, names)
        # Last: the statements before read the tables.
        execute_binary(db, _HIDE_TABLES, {})


def show(db: Connection, experiment_id: ExperimentId, link: LinkView) -> None:
    """Have the views show what the link shows; the tables remain. Raises TooLarge as `enter`."""
    with pipeline(db):
        names = _request_names(db, experiment_id, link)
    _show(db, link, names)


def _request_names(
    db: Connection, experiment_id: ExperimentId, link: LinkView
) -> Mapping[str, PendingResult]:
    """Request id and name of all runs, and of all tags, where there is a pattern for them."""
    return {
        kind: execute_binary(db, query, {"experiment_id": experiment_id})
        for kind, query, pattern in (
            ("runs", _RUNS, link.run_pattern),
            ("tags", _TAGS, link.tag_pattern),
        )
        if pattern is not None
    }


def _show(db: Connection, link: LinkView, names: Mapping[str, PendingResult]) -> None:
    searches = PatternSearches()
    patterns = {"runs": link.run_pattern, "tags": link.tag_pattern}
    visible = {
        f"tbhub.visible_{kind}": _ALL
        if pattern is None
        else _match(searches, pattern, names[kind].rows())
        for kind, pattern in patterns.items()
    }
    set_locals(db, {**visible, "tbhub.is_anonymous": str(link.is_anonymous).lower()})


def _match(searches: PatternSearches, pattern: str, names: Sequence[tuple[int, str]]) -> str:
    """Return, as an array of SQL, the ids of those whose complete name matches."""
    return "{" + ",".join(map(str, searches.list_full_matches(pattern, names))) + "}"
