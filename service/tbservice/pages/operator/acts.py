"""Acts of operators on their pages, each by the use case of the command that does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice.auth import sessions, suspensions, tokens
from tbservice.errors import Invalid
from tbservice.experiments import quota_changes, reports
from tbservice.experiments.workspace_overview import administrate
from tbservice.pages.base.forms import FormFields
from tbservice.pages.operator.operator_page import OperatorPage
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import QUOTA_MAX, QUOTA_NAMES
from tbservice.types.suspensions import Suspendable


class ActedOn(NamedTuple):
    """The workspace or the person whose page an act is done on; neither on other pages."""

    workspace_id: WorkspaceId | None = None
    user_id: UserId | None = None


def perform(page: OperatorPage, form: FormFields, on: ActedOn) -> str:
    """Do what a form says; return the name of what was done, for `done` of `_macros.html`.

    Raises Forbidden for a sign-in that is too old, and as the use case does.
    """
    act = form.choice("act", [*_ACTS, "quota"])
    if act == "quota":
        if on.workspace_id is None:
            raise Invalid("this is done on the page of a workspace")
        with page.database.transaction() as db:
            page.check_act(db)
        _set_quota(page, form, on.workspace_id)
        return act
    with page.database.transaction() as db:
        page.check_act(db)
        return _ACTS[act](db, form, on) or act


def _suspend(db: Connection, form: FormFields, on: ActedOn) -> str | None:
    kind = Suspendable(form.choice("kind", [*Suspendable]))
    named, reason = form.text("subject"), form.text("reason")
    subject = suspensions.suspend(db, kind, named, reason, on.workspace_id)
    if subject is not None and kind is Suspendable.PERSON:
        alone = suspensions.list_sole_ownerships(db, UserId(subject.object_id))
        return "suspend-owner" if alone else None
    return None


def _release(db: Connection, form: FormFields, _on: ActedOn) -> None:
    kind = Suspendable(form.choice("kind", [*Suspendable]))
    suspensions.release(db, kind, form.text("subject"))


def _close_report(db: Connection, form: FormFields, _on: ActedOn) -> None:
    reports.close_report(db, form.text("report"), form.text("note"))


def _end_session(db: Connection, form: FormFields, on: ActedOn) -> None:
    sessions.revoke_session(db, _person_of(on), form.text("session_id"))


def _end_sessions(db: Connection, _form: FormFields, on: ActedOn) -> None:
    sessions.revoke_other_sessions(db, _person_of(on), "")


def _revoke_token(db: Connection, form: FormFields, on: ActedOn) -> None:
    token_id = form.text("token_id")
    if on.workspace_id is None:
        tokens.revoke_personal_token(db, _person_of(on), token_id)
    else:
        tokens.revoke_workspace_token(db, administrate(db, on.workspace_id), token_id)


_ACTS: Final[dict[str, Callable[[Connection, FormFields, ActedOn], str | None]]] = {
    "suspend": _suspend,
    "release": _release,
    "close": _close_report,
    "end-session": _end_session,
    "end-sessions": _end_sessions,
    "revoke-token": _revoke_token,
}


def _person_of(on: ActedOn) -> UserId:
    if on.user_id is None:
        raise Invalid("this is done on the page of a person")
    return on.user_id


def _set_quota(page: OperatorPage, form: FormFields, workspace_id: WorkspaceId) -> None:
    """Set plan and limits to those of the form, in which an empty limit is that of the plan."""
    limits = {name: _parse_limit(name, form.text(name)) for name in QUOTA_NAMES}
    plan = form.text("plan") or None
    quota_changes.change_quota(page.database, workspace_id, plan, limits, clears=True)


def _parse_limit(name: str, written: str) -> int | None:
    if written in ("", "none"):
        return QUOTA_MAX if written else None
    digits = written.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > QUOTA_MAX:
        raise Invalid(f"{name} is a whole number, 'none' for no limit, or empty for the plan's")
    return int(digits)
