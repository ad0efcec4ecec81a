"""Contents of the operator's pages as JSON, for commands: the service, a workspace, a person.

Parts that the HTTP API has as well are as it answers them. No secrets, and as on the pages, no
names of experiments.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from http.client import HTTPException
from importlib.metadata import version
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.api.http.metrics_exposition import REFUSALS, parse_counters
from tbservice.api.v1.people.members import member_answer
from tbservice.api.v1.people.token_models import TokenAnswer
from tbservice.api.v1.people.workspace_usage import usage_answer
from tbservice.api.v1.sharing.share_links import LinkAnswer
from tbservice.audit.backups import list_backups
from tbservice.auth import members, people, person_overview, sessions, tokens
from tbservice.auth.person_overview import PersonDetails
from tbservice.db.database import Database
from tbservice.errors import Invalid, Unavailable
from tbservice.experiments import share_links, usage, workspace_overview
from tbservice.experiments.quota_changes import describe_quota
from tbservice.objects.object_store import ObjectStore
from tbservice.settings import Settings
from tbservice.types.audit import to_text
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import Json, WorkspaceId

_ASK_SECONDS_MAX: Final = 5
"""Seconds to wait for the running service."""

_PEOPLE_MAX: Final = 1_000_000

_METRICS_BYTES_MAX: Final = 64 * limits.MIB


def describe_workspace(db: Connection, workspace_id: WorkspaceId) -> Json:
    """Return a workspace: members, the newest tokens and links, quota and usage. Raises NotFound.

    At most PAGE_ITEMS_MAX tokens, links, and experiments, the largest ones.
    """
    items = limits.PAGE_ITEMS_MAX
    details = workspace_overview.describe_one(db, workspace_id)
    grant = workspace_overview.administrate(db, workspace_id)
    listed, _ = tokens.list_workspace_tokens(db, grant, None, items)
    links, _ = share_links.list_workspace_links(db, grant, None, None, items)
    stored = usage.read_usage(db, WorkspaceGrant(workspace_id), items)
    unnamed = {each: {"__all__": {"name"}} for each in ("experiments", "traffic_experiments")}
    return {
        **details.as_dict(),
        "plan": describe_quota(db, workspace_id).plan,
        "members": [
            member_answer(each).model_dump(mode="json") | {"is_confirmed": each.is_confirmed}
            for each in members.list_members(db, grant)
        ],
        "tokens": [TokenAnswer.model_validate(each).model_dump(mode="json") for each in listed],
        "links": [
            LinkAnswer.model_validate(each.link).model_dump(mode="json")
            | {"experiment_id": each.experiment_id}
            for each in links
        ],
        "usage": usage_answer(stored).model_dump(mode="json", exclude=unnamed),
    }


def describe_person(db: Connection, named: str) -> Json:
    """Return a person, by id or address: workspaces, browser sessions, newest tokens, requests.

    Raises NotFound, and others as `people.find_named`.
    """
    user_id = people.find_named(db, named).user_id
    shown = ("session_id", "user_agent", "address")
    moments = ("created_at", "last_used_at", "expires_at")
    details = person_overview.describe_one(db, user_id)
    return {
        **_summarize(details),
        "sessions": [
            {name: getattr(each, name) for name in shown}
            | {name: to_text(getattr(each, name)) for name in moments}
            for each in sessions.list_sessions(db, user_id)
        ],
        "tokens": [
            TokenAnswer.model_validate(each).model_dump(mode="json")
            | {"workspace_id": each.workspace_id, "experiment_id": each.experiment_id}
            for each in tokens.list_personal_tokens(db, user_id)
        ],
        "traffic": [
            {"workspace_id": place.workspace_id, "month": month, **counts._asdict()}
            for place, month, counts in person_overview.list_traffic(db, details)
        ],
    }


def list_people(db: Connection) -> Iterator[Json]:
    """Yield all people, those who came last first: `sessions` and `tokens` are their numbers."""
    order, state = person_overview.ORDERS[0], person_overview.STATES[0]
    _, found = person_overview.list_page(db, order, state, "", _PEOPLE_MAX, 0)
    for details in found:
        yield _summarize(details) | {"sessions": details.sessions, "tokens": details.tokens}


def _summarize(details: PersonDetails) -> Json:
    return {
        **asdict(details.person),
        "state": details.state,
        "is_operator": details.is_operator,
        "is_confirmed": details.is_confirmed,
        "created_at": to_text(details.created_at),
        "last_sign_in_at": to_text(details.last_sign_in_at),
        "workspaces": [asdict(each) | {"role": each.role.value} for each in details.memberships],
    }


def describe_service(settings: Settings, server: str) -> Json:
    """Return the state of database, bucket and nodes, versions, the last backup, what was refused.

    Asks PostgreSQL and S3 itself, and the running service at the URL `server` for its nodes and
    counters: of all workers of one host since they started. A part that cannot be asked is a
    sentence in `problems`, which is empty if all is well. Raises Invalid for a URL that is none.
    """
    problems: list[str] = []
    shown: Json = {
        "problems": problems,
        "versions": {"tbhub": version("tbhub")},
        "backup_keep_days": settings.backup_keep_days,
    }
    with closing(ObjectStore(settings)) as objects, _noting(problems, "object store"):
        objects.check()
    url = settings.database_url.get_secret_value()
    with closing(Database(url, 1)) as database, _noting(problems, "database"):
        shown |= _describe_database(database, problems)
    shown |= _ask_service(settings, server, problems)
    return shown


def _describe_database(database: Database, problems: list[str]) -> Json:
    state = database.read_state()
    if state.missing_migrations:
        problems.append(f"migrations are missing: {', '.join(state.missing_migrations)}")
    with database.snapshot() as db:
        backup = next(iter(list_backups(db, limit=1)), None)
    if backup is not None and backup.lost:
        problems.append(f"the last backup lacks {backup.lost} objects")
    database.check_writable()
    return {
        "postgresql": state.server_version,
        "database_bytes": state.size,
        "migration": state.migration,
        "connections": dict(state.connections),
        "last_backup": backup and backup.to_json(),
    }


def _ask_service(settings: Settings, server: str, problems: list[str]) -> Json:
    """Return what only a running service knows."""
    if not server.startswith(("http://", "https://")):
        raise Invalid(f"{server}: the URL of a service begins with http:// or https://")
    ready: Json = {}
    counted = parse_counters("", *REFUSALS)
    with _noting(problems, f"service at {server}"):
        ready = json.loads(_get(f"{server.rstrip('/')}/readyz", {}))
    token = settings.metrics_token
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    if ready:
        with _noting(problems, f"metrics of {server}"):
            counted = parse_counters(_get(f"{server.rstrip('/')}/metrics", headers), *REFUSALS)
    if ready.get("unavailable_nodes"):
        problems.append(f"nodes are unavailable: {ready['unavailable_nodes']}")
    return {
        "service": server,
        "unavailable_nodes": ready.get("unavailable_nodes"),
        "refused": {
            name: [labels | {"count": count} for labels, count in counters]
            for name, counters in counted.items()
        },
    }


def _get(url: str, headers: dict[str, str]) -> str:
    """Return the body of an answer. Raises Unavailable."""
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http, checked above
    try:
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS_MAX) as answer:  # noqa: S310 - as above
            return str(answer.read(_METRICS_BYTES_MAX).decode())
    except urllib.error.HTTPError as error:
        raise Unavailable(f"it answers with status {error.code}") from error
    except (OSError, HTTPException) as error:
        raise Unavailable(f"it does not answer: {error}") from error


@contextmanager
def _noting(problems: list[str], what: str) -> Iterator[None]:
    """Note what is unavailable, in place of raising it."""
    try:
        yield
    except Unavailable as error:
        problems.append(f"{what}: {error.detail}")
    except ValueError:
        problems.append(f"{what}: it answers, but not as a tbhub server")
