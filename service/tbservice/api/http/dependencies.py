"""FastAPI dependencies of routes: settings, stores, and the grants of a request's token.

Routes declare them in the order of work: grant, body, transaction. Tokens come in the header
`Authorization` alone. A browser sends no such header by itself, so that these routes need no
protection against requests from other sites; browser sessions are refused there.
"""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from tbservice.api.http.etag import is_conditional, set_etag
from tbservice.auth import grants
from tbservice.auth.secrets import is_experiment_id
from tbservice.db.database import Database
from tbservice.errors import Unauthenticated
from tbservice.experiments import lifecycle
from tbservice.ingest.service import Ingest
from tbservice.objects.object_store import ObjectStore
from tbservice.settings import Settings
from tbservice.types.grants import (
    AdminGrant,
    AppendGrant,
    OwnerGrant,
    PersonalGrant,
    ReadGrant,
    Scope,
    WorkspaceGrant,
)
from tbservice.types.identifiers import INT64_MAX, ExperimentId, WorkspaceId

_bearer = HTTPBearer(
    auto_error=False, description="A tbhub token: an owner token, or one created for an experiment"
)


def get_database(request: Request) -> Database:
    """Return the application's database."""
    return cast("Database", request.app.state.database)


def get_object_store(request: Request) -> ObjectStore:
    """Return the application's object store."""
    return cast("ObjectStore", request.app.state.objects)


def get_settings(request: Request) -> Settings:
    """Return the application's settings."""
    return cast("Settings", request.app.state.settings)


# Coroutines, as FastAPI runs each plain function in a worker thread: too much for an attribute.


async def _get_database(request: Request) -> Database:
    return get_database(request)


async def _get_object_store(request: Request) -> ObjectStore:
    return get_object_store(request)


async def _ingest(request: Request) -> Ingest:
    return cast("Ingest", request.app.state.ingest)


async def _get_settings(request: Request) -> Settings:
    return get_settings(request)


async def _read_secret(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str | None:
    """Return the token of a request, None without an Authorization header.

    Raises Unauthenticated for an authentication scheme other than Bearer, which is not ignored,
    and for the secret of a browser session.
    """
    if credentials is not None:
        return grants.require_no_session(credentials.credentials)
    if "authorization" in request.headers:
        raise Unauthenticated("the Authorization header must be 'Bearer <token>'")
    return None


UsesDatabase = Annotated[Database, Depends(_get_database)]
UsesObjects = Annotated[ObjectStore, Depends(_get_object_store)]
UsesIngest = Annotated[Ingest, Depends(_ingest)]
UsesSettings = Annotated[Settings, Depends(_get_settings)]
Secret = Annotated[str | None, Depends(_read_secret)]


WorkspacePath = Annotated[
    int, Path(ge=1, le=INT64_MAX, description="The workspace's id, as `GET /api/v1/me` names it")
]


def _grant_manage(
    workspace_id: WorkspacePath, database: UsesDatabase, secret: Secret
) -> OwnerGrant:
    with database.without_transaction() as db:
        return grants.grant_owner(db, secret, WorkspaceId(workspace_id))


def _grant_see_members(
    workspace_id: WorkspacePath, database: UsesDatabase, secret: Secret
) -> WorkspaceGrant:
    with database.without_transaction() as db:
        return grants.grant_member(db, secret, WorkspaceId(workspace_id))


def _grant_personal_admin(database: UsesDatabase, secret: Secret) -> PersonalGrant:
    with database.without_transaction() as db:
        return grants.grant_personal(db, secret)


def _grant_personal(database: UsesDatabase, secret: Secret) -> PersonalGrant:
    with database.without_transaction() as db:
        return grants.grant_personal(db, secret, scope=None)


def _grant_create(database: UsesDatabase, secret: Secret) -> WorkspaceGrant:
    with database.without_transaction() as db:
        return grants.grant_workspace(db, secret, Scope.APPEND)


def _grant_list(database: UsesDatabase, secret: Secret) -> WorkspaceGrant:
    with database.without_transaction() as db:
        return grants.grant_workspace(db, secret, Scope.READ)


def _grant_restore(database: UsesDatabase, secret: Secret) -> WorkspaceGrant:
    with database.without_transaction() as db:
        return grants.grant_workspace(db, secret, Scope.ADMIN)


def _well_formed(experiment_id: str) -> ExperimentId | None:
    """Return an id that may exist: strangers send anything, which nobody should look up or keep."""
    return ExperimentId(experiment_id) if is_experiment_id(experiment_id) else None


def _grant_read(
    request: Request, experiment_id: str, database: UsesDatabase, secret: Secret
) -> ReadGrant:
    with database.without_transaction(_well_formed(experiment_id)) as db:
        grant = grants.grant_read(db, experiment_id, secret)
    if is_conditional(request):
        with database.transaction(grant) as db:
            set_etag(request, lifecycle.get_version_tag(db, grant))
    return grant


def _grant_read_by_token(experiment_id: str, database: UsesDatabase, secret: Secret) -> ReadGrant:
    if secret is None:
        raise Unauthenticated("this takes a token, also if everyone may read the experiment")
    with database.without_transaction(_well_formed(experiment_id)) as db:
        return grants.grant_read_by_token(db, experiment_id, secret)[0]


def _grant_append(experiment_id: str, database: UsesDatabase, secret: Secret) -> AppendGrant:
    with database.without_transaction(_well_formed(experiment_id)) as db:
        return grants.grant_append(db, experiment_id, secret)


def _grant_admin(experiment_id: str, database: UsesDatabase, secret: Secret) -> AdminGrant:
    with database.without_transaction(_well_formed(experiment_id)) as db:
        return grants.grant_admin(db, experiment_id, secret)


MayManage = Annotated[OwnerGrant, Depends(_grant_manage)]
MaySeeMembers = Annotated[WorkspaceGrant, Depends(_grant_see_members)]
ActsForPerson = Annotated[PersonalGrant, Depends(_grant_personal_admin)]
IsPersonal = Annotated[PersonalGrant, Depends(_grant_personal)]
MayCreate = Annotated[WorkspaceGrant, Depends(_grant_create)]
MayList = Annotated[WorkspaceGrant, Depends(_grant_list)]
MayRestore = Annotated[WorkspaceGrant, Depends(_grant_restore)]
MayRead = Annotated[ReadGrant, Depends(_grant_read)]
MayReadByToken = Annotated[ReadGrant, Depends(_grant_read_by_token)]
MayAppend = Annotated[AppendGrant, Depends(_grant_append)]
MayAdminister = Annotated[AdminGrant, Depends(_grant_admin)]
