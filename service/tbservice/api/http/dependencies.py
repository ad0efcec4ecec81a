"""FastAPI dependencies of routes: settings, stores, and the grants of a request's token.

Routes declare them in the order of work: grant, body, transaction. Tokens come in the header
`Authorization` alone. A browser sends no such header by itself, so that these routes need no
protection against requests from other sites; browser sessions are refused there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from sqlalchemy import Connection

from tbservice.api.http.etag import answer_if_current, is_conditional
from tbservice.api.http.grant_route import PendingGrant
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
    Grant,
    OwnerGrant,
    PersonalGrant,
    ReadGrant,
    Scope,
    WorkspaceGrant,
)
from tbservice.types.identifiers import INT64_MAX, ExperimentId, WorkspaceId


def get_database(request: Request) -> Database:
    """Return the application's database."""
    return cast("Database", request.app.state.database)


def get_object_store(request: Request) -> ObjectStore:
    """Return the application's object store."""
    return cast("ObjectStore", request.app.state.objects)


def get_settings(request: Request) -> Settings:
    """Return the application's settings."""
    return cast("Settings", request.app.state.settings)


def from_state(name: str) -> Any:
    """Return a dependency on an attribute of the application's state.

    A coroutine, as FastAPI runs each plain function in a worker thread: too much for an attribute.
    """

    async def get(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(get)


class _ReadsSecret(HTTPBearer):
    """Dependency on the token of a request, None without an Authorization header.

    One dependency and no tree of them: FastAPI takes some 20 µs for each.
    """

    def __init__(self) -> None:
        super().__init__(
            scheme_name=HTTPBearer.__name__,
            description="A tbhub token: an owner token, or one created for an experiment",
        )

    async def __call__(self, request: Request) -> str | None:  # type: ignore[override] # FastAPI calls it
        """Return the token.

        Raises Unauthenticated for an authentication scheme other than Bearer, which is not ignored,
        and for the secret of a browser session.
        """
        header = request.headers.get("authorization")
        if header is None:
            return None
        scheme, secret = get_authorization_scheme_param(header)
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("the Authorization header must be 'Bearer <token>'")
        return grants.require_no_session(secret)


UsesDatabase = Annotated[Database, from_state("database")]
UsesObjects = Annotated[ObjectStore, from_state("objects")]
UsesIngest = Annotated[Ingest, from_state("ingest")]
UsesSettings = Annotated[Settings, from_state("settings")]
Secret = Annotated[str | None, Depends(_ReadsSecret())]


WorkspacePath = Annotated[
    int, Path(ge=1, le=INT64_MAX, description="The workspace's id, as `GET /api/v1/me` names it")
]


class _Needs(_ReadsSecret):
    """Dependency on a grant, which is pending.

    A route of `GrantRoute` gets the grant itself. A dependency that needs it calls
    `look_up_grants`.
    """

    def __init__(self, look_up: Callable[..., Grant]) -> None:
        """`look_up` takes a connection, the token, and what the path of the route names."""
        super().__init__()
        self._look_up = look_up

    async def __call__(self, request: Request) -> PendingGrant:  # type: ignore[override] # as above
        """Have the grant looked up by the token of the request. Raises as `_ReadsSecret`."""
        return await self._pend(request)

    async def _pend(
        self, request: Request, *named: object, experiment_id: ExperimentId | None = None
    ) -> PendingGrant:
        secret = await super().__call__(request)
        return PendingGrant(
            request,
            get_database(request),
            lambda db: self._look_up(db, secret, *named),
            experiment_id,
        )


class _NeedsOfWorkspace(_Needs):
    """Dependency on a grant for the workspace of the path."""

    async def __call__(self, request: Request, workspace_id: WorkspacePath) -> PendingGrant:  # type: ignore[override] # as above
        """Have the grant looked up as `_Needs` does."""
        return await self._pend(request, WorkspaceId(workspace_id))


class _NeedsOfExperiment(_Needs):
    """Dependency on a grant for the experiment of the path, of which `look_up` gets the request."""

    async def __call__(self, request: Request, experiment_id: str) -> PendingGrant:  # type: ignore[override] # as above
        """Have the grant looked up as `_Needs` does."""
        # Strangers send anything, which nobody should look up or keep.
        known = ExperimentId(experiment_id) if is_experiment_id(experiment_id) else None
        return await self._pend(request, experiment_id, request, experiment_id=known)


def _grant_read(
    db: Connection, secret: str | None, experiment_id: str, request: Request
) -> ReadGrant:
    grant, owner = grants.grant_read_and_find_owner(db, experiment_id, secret)
    if is_conditional(request):
        # Of the same statement as the right: a 304 needs no other.
        version = lifecycle.make_version_tag(owner.version, owner.updated_at, grant)
        answer_if_current(request, grant, version)
    return grant


def _grant_read_by_token(
    db: Connection, secret: str | None, experiment_id: str, _request: Request
) -> ReadGrant:
    if secret is None:
        raise Unauthenticated("this takes a token, also if everyone may read the experiment")
    return grants.grant_read_by_token(db, experiment_id, secret)[0]


def _grant_experiment(look_up: Callable[..., Grant], **options: bool) -> _Needs:
    return _NeedsOfExperiment(
        lambda db, secret, experiment_id, _request: look_up(db, experiment_id, secret, **options)
    )


def _grant_workspace(scope: Scope) -> _Needs:
    return _Needs(lambda db, secret: grants.grant_workspace(db, secret, scope))


def _grant_in_workspace(scope: Scope) -> _Needs:
    return _NeedsOfWorkspace(
        lambda db, secret, workspace: grants.grant_workspace(db, secret, scope, workspace)
    )


MayManage = Annotated[OwnerGrant, Depends(_NeedsOfWorkspace(grants.grant_owner))]
MaySeeMembers = Annotated[WorkspaceGrant, Depends(_NeedsOfWorkspace(grants.grant_member))]
ActsForPerson = Annotated[PersonalGrant, Depends(_Needs(grants.grant_personal))]
ReadsForPerson = Annotated[
    PersonalGrant,
    Depends(_Needs(lambda db, secret: grants.grant_personal(db, secret, scope=Scope.READ))),
]
IsPersonal = Annotated[
    PersonalGrant, Depends(_Needs(lambda db, secret: grants.grant_personal(db, secret, scope=None)))
]
MayCreate = Annotated[WorkspaceGrant, Depends(_grant_workspace(Scope.APPEND))]
MayList = Annotated[WorkspaceGrant, Depends(_grant_workspace(Scope.READ))]
MayListIn = Annotated[WorkspaceGrant, Depends(_grant_in_workspace(Scope.READ))]
MayManageIn = Annotated[WorkspaceGrant, Depends(_grant_in_workspace(Scope.ADMIN))]
MayRestore = Annotated[WorkspaceGrant, Depends(_grant_workspace(Scope.ADMIN))]
MayRead = Annotated[ReadGrant, Depends(_NeedsOfExperiment(_grant_read))]
MayReadByToken = Annotated[ReadGrant, Depends(_NeedsOfExperiment(_grant_read_by_token))]
MayAppend = Annotated[AppendGrant, Depends(_grant_experiment(grants.grant_append))]
MayAdminister = Annotated[AdminGrant, Depends(_grant_experiment(grants.grant_admin))]
MayEndLinks = Annotated[
    AdminGrant, Depends(_grant_experiment(grants.grant_admin, allows_kept_copy=True))
]
