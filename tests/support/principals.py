"""Every kind of principal that a request can be made by, and what each may do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import text

from support.batches import ApiClient
from support.people import new_machine_token, new_member, new_person, new_personal_token, sign_in
from support.servers import new_workspace
from tbservice.auth import people, sessions
from tbservice.db.database import set_local
from tbservice.types.grants import Scope
from tbservice.types.people import Role

HERE, ELSEWHERE = "here", "elsewhere"
"""The workspace that is asked about, and another one."""

WORKSPACE, THIS, OTHER = "workspace", "this experiment", "another experiment"
"""Subjects that a token may be for."""


@dataclass(frozen=True)
class Principal:
    """A secret, and what it means; `role` is None for a machine's token."""

    name: str
    secret: str | None
    scopes: frozenset[str] = frozenset()
    reach: str = WORKSPACE
    place: str = HERE
    role: Role | None = None
    is_valid: bool = True
    is_session: bool = False

    @property
    def is_known(self):
        """Return whether a header with the secret tells who asks."""
        return self.is_valid and not self.is_session

    @property
    def kind(self):
        """Return what decides about the secret before its scopes do."""
        return (self.is_valid, self.is_session, self.reach, self.place)

    def status(self, need):
        """Return the status of a request that needs this; None for success."""
        if not self.is_known:  # a header carries no session
            return 401
        return _STATUSES[need](self)

    def page_status(self):
        """Return whether a page of the experiment opens with the secret in its cookie."""
        if not self.is_valid:
            return 401
        return self._of_experiment("read")

    def _of_experiment(self, scope):
        if self.place == ELSEWHERE or self.reach == OTHER:
            return 404
        return self._of_scope(scope)

    def _of_workspace(self, scope):
        return 403 if self.reach != WORKSPACE else self._of_scope(scope)

    def _of_this_workspace(self, scope):
        if self.reach != WORKSPACE:
            return 403
        return 404 if self.place == ELSEWHERE else self._of_scope(scope)

    def _of_owner(self):
        is_editor = self.role not in {None, Role.OWNER}
        status = self._of_this_workspace("admin")
        return 403 if status is None and is_editor else status

    def _of_owning_person(self):
        status = self._of_owner()
        return 403 if status is None and self.role is None else status

    def _of_person(self, scope):
        return 403 if self.role is None else self._of_workspace(scope)

    def _of_scope(self, scope):
        return None if scope is None or self.scopes & {scope, "admin"} else 403


_STATUSES = {
    "any": lambda principal: principal._of_scope(None),
    "read": lambda principal: principal._of_experiment("read"),
    "append": lambda principal: principal._of_experiment("append"),
    "admin": lambda principal: principal._of_experiment("admin"),
    "create": lambda principal: principal._of_workspace("append"),
    "list": lambda principal: principal._of_workspace("read"),
    "list in": lambda principal: principal._of_this_workspace("read"),
    "manage in": lambda principal: principal._of_this_workspace("admin"),
    "manage": lambda principal: principal._of_workspace("admin"),
    "member": lambda principal: principal._of_this_workspace(
        "admin" if principal.role is None else "read"
    ),
    "owner": Principal._of_owner,
    "owning person": Principal._of_owning_person,
    "person": lambda principal: principal._of_person("admin"),
    "person's experiment": lambda principal: (
        principal._of_person("read") or (404 if principal.place == ELSEWHERE else None)
    ),
    "personal token": lambda principal: principal._of_person(None),
}
"""Status that a principal gets, by the need of the route."""


def tell_apart(principals, need):
    """Return principals by whom a route with this need differs from one with any other: for each
    other need one who is answered in another way, two with the right, and one of each kind.

    By them it is told which grant a route takes. What the grant takes, every principal tells.
    """
    kinds = {each.kind: each for each in reversed(principals)}
    selection = [*kinds.values(), *[each for each in principals if each.status(need) is None][:2]]
    for other in _STATUSES.values():
        telling = [
            each for each in principals if each.is_known and other(each) != each.status(need)
        ]
        if telling and not any(each in selection for each in telling):
            selection.append(telling[0])
    return list(dict.fromkeys(selection))


SCOPES = [{"append"}, {"read"}, {"append", "read"}, {"admin"}]


def make_principals(client, database, database_url, workspace, experiment):
    """Create one of each kind, for an experiment of the workspace."""
    elsewhere = new_workspace(database_url)
    workspace_id, owner_token = workspace.workspace_id, workspace.owner_token
    api, stranger = ApiClient(client, owner_token), ApiClient(client, elsewhere.owner_token)
    made = [
        Principal("anonymous", None, is_valid=False),
        Principal("nonsense", "nonsense", is_valid=False),
        Principal("owner token", owner_token, frozenset({"admin"})),
        Principal(
            "owner token elsewhere", elsewhere.owner_token, frozenset({"admin"}), place=ELSEWHERE
        ),
    ]
    for scopes in SCOPES[:3]:
        for who, target, reach, place in (
            (api, experiment, THIS, HERE),
            (api, api.new_experiment(), OTHER, HERE),
            (stranger, stranger.new_experiment(), OTHER, ELSEWHERE),
        ):
            secret = who.new_token(target, *scopes)
            name = f"{' and '.join(sorted(scopes))} token of {reach} {place}"
            made.append(Principal(name, secret, frozenset(scopes), reach, place))
    made += _links(api, experiment)
    for place, place_id in ((HERE, workspace_id), (ELSEWHERE, elsewhere.workspace_id)):
        made += _machines(database, place, place_id)
        made += _people(database, place, place_id)
    return [*made, *_invalid(database, workspace_id, made)]


def _links(api, experiment):
    """Share links: of everything, of a slice, anonymous, and revoked."""
    path = f"/experiments/{experiment}/links"
    for name, properties in (
        ("link", {}),
        ("link of a slice", {"runs": "train", "tags": "loss|note|cat"}),
        ("anonymous link", {"anonymous": True}),
        ("revoked link", {}),
    ):
        made = api.request("POST", path, json=properties).json()
        principal = Principal(name, made["token"], frozenset({"read"}), THIS)
        if name == "revoked link":
            api.request("DELETE", f"{path}/{made['id']}").raise_for_status()
            principal = replace(principal, is_valid=False)
        yield principal


def _machines(database, place, place_id):
    for scopes in SCOPES:
        secret = new_machine_token(database, place_id, *map(Scope, scopes))
        yield Principal(f"machine {sorted(scopes)} {place}", secret, frozenset(scopes), place=place)


def _people(database, place, place_id):
    for role in Role:
        member = new_member(database, place_id, role)
        permitted = {scope.value for scope in role.scopes}
        for scopes in SCOPES:
            if scopes <= permitted:
                secret = new_personal_token(database, place_id, member, *map(Scope, scopes))
                name = f"{role} with {sorted(scopes)} {place}"
                yield Principal(name, secret, frozenset(scopes), place=place, role=role)
        session = Principal(f"session of {role} {place}", sign_in(database, member))
        scopes = frozenset(permitted)
        yield replace(session, scopes=scopes, place=place, role=role, is_session=True)


def _invalid(database, workspace_id, made):
    """Secrets that were valid: expired, revoked, of people who are disabled or have left."""
    owners = [new_member(database, workspace_id) for _ in range(4)]
    tokens = [new_personal_token(database, workspace_id, each, Scope.ADMIN) for each in owners]
    cookies = [sign_in(database, each) for each in owners]
    disabled, gone, expired, idle = owners
    with database.transaction() as db:
        people.disable(db, disabled.user_id)
    with database.transaction() as db:
        sessions.close_session(db, cookies[1])
    with database.transaction(workspace_id) as db:
        statement = "UPDATE tokens SET revoked_at = now() WHERE user_id = :id"
        db.execute(text(statement), {"id": gone.user_id})
        statement = "UPDATE tokens SET expires_at = now() WHERE user_id IN (:first, :second)"
        db.execute(text(statement), {"first": expired.user_id, "second": idle.user_id})
    for person, change in (
        (expired, "expires_at = now() - interval '1 second'"),
        (idle, "last_used_at = now() - interval '1 year'"),
    ):
        with database.transaction() as db:
            set_local(db, "user_id", person.user_id)
            statement = f"UPDATE browser_sessions SET {change} WHERE user_id = :id"  # noqa: S608 - one of the above
            db.execute(text(statement), {"id": person.user_id})
    names = ("disabled person", "revoked", "expired", "idle")
    for name, token, cookie in zip(names, tokens, cookies, strict=True):
        yield Principal(f"token: {name}", token, is_valid=False)
        yield Principal(f"session: {name}", cookie, is_valid=False, is_session=True)
    newcomer = sign_in(database, new_person(database))
    yield Principal("session of no member", newcomer, place=ELSEWHERE, is_session=True)
    valid = next(each.secret for each in made if each.secret and each.is_valid)
    yield Principal("mistyped", valid[:-1] + ("0" if valid[-1] != "0" else "1"), is_valid=False)
