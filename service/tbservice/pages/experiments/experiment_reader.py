"""Reader of our own page of an experiment: a member, who has a link, or anybody."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fastapi import Request

from tbservice.admission.callers import page_tokens
from tbservice.auth import grants, sessions, tokens
from tbservice.db.database import Database
from tbservice.errors import Forbidden, NotFound, Suspended, Unauthenticated
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignInRequired, sign_in_error
from tbservice.types.grants import ReadGrant, Scope
from tbservice.types.people import Membership

LIVE_EXPERIMENTS_ITEMS_MAX: Final = 4
"""Experiments (items) of a page whose rows are live: as many streams as a browser opens."""

_NO_ACCESS = (Unauthenticated, NotFound, Forbidden)


@dataclass(frozen=True, slots=True)
class PageReader:
    """The right to read an experiment, and whose it is.

    `token` reads this experiment alone, for the page's script; None where everybody may read.
    """

    grant: ReadGrant
    membership: Membership | None
    token: str | None = field(repr=False)

    @property
    def may_change(self) -> bool:
        """Whether the person's role allows to change and share the experiment."""
        return self.membership is not None and Scope.ADMIN in self.membership.role.scopes


def find_reader(
    request: Request, experiment_id: str, session: PersonSession | None, database: Database
) -> PageReader:
    """Return the reader of an experiment's page.

    A member sees all of it; others see what the token of the page's cookie shows, a share link's
    for example, or what everybody sees.

    Raises SignInRequired if nobody is signed in, else NotFound or Forbidden; Suspended.
    """
    person = None if session is None else _find_grant(database, experiment_id, session.secret)
    if session is not None and person is not None and not person.is_stranger:
        membership = session.find_membership(person.workspace_id)
        token = make_script_token(database, person, session)
        return PageReader(person, membership, token)
    suspended: Suspended | None = None
    for token in page_tokens(request.headers.get("cookie", "")):
        try:
            grant = _find_grant(database, experiment_id, token)
        except Suspended as error:  # of this link: others may read it without one
            suspended, grant = error, None
        if grant is not None and not grant.is_stranger:
            return PageReader(grant, None, token)
    anybody = person or _find_grant(database, experiment_id, None)
    if anybody is not None:
        return PageReader(anybody, None, None)
    if suspended is not None:
        raise suspended
    if page_tokens(request.headers.get("cookie", "")):
        raise Unauthenticated(
            "the link that you opened shows this experiment no longer: it has ended, or the "
            "experiment was deleted; ask for another one, or sign in"
        )
    if session is None:
        raise sign_in_error(request)
    raise NotFound("there is no such experiment, or it is not yours")


def make_script_token(database: Database, grant: ReadGrant, session: PersonSession) -> str:
    """Return the token by which the script of a member's page reads one experiment.

    The API takes no browser sessions. It ends with the session, and is the same at each call; on
    the content origin a browser has the same one. Raises SignInRequired if the session has ended.
    """
    with database.transaction() as db:
        found = sessions.find_session(db, session.secret)
    if found is None:
        raise SignInRequired("sign in first")
    with database.transaction(grant) as db:
        return tokens.make_session_token(db, grant, found, session.secret)


def list_live_sources(
    database: Database, session: PersonSession, ids: Iterable[str]
) -> list[dict[str, str]]:
    """Return id and token of the first of these experiments, which the person may read."""
    sources: list[dict[str, str]] = []
    for experiment_id in list(dict.fromkeys(ids))[:LIVE_EXPERIMENTS_ITEMS_MAX]:
        with suppress(NotFound):  # it was deleted meanwhile
            with database.without_transaction() as db:
                grant = grants.grant_read(db, experiment_id, session.secret)
            token = make_script_token(database, grant, session)
            sources.append({"id": experiment_id, "token": token})
    return sources


def _find_grant(database: Database, experiment_id: str, secret: str | None) -> ReadGrant | None:
    with database.without_transaction() as db:
        try:
            return grants.grant_read(db, experiment_id, secret)
        except _NO_ACCESS:
            return None
