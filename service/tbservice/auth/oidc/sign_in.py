"""Begin and finish a sign-in at an OpenID provider.

A sign-in is bound to the browser that began it (a cookie) and to its `state`, which is used up by
the first redirect that has it: a forged, replayed or foreign redirect signs nobody in.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acting import get_acting
from tbservice.auth import invitations, people
from tbservice.auth.emails import email_key
from tbservice.auth.link_urls import INVITATION_PATH
from tbservice.auth.oidc.authorization import Authorization
from tbservice.auth.oidc.memberships import plan_memberships
from tbservice.auth.tables import sign_in_attempts
from tbservice.auth.tables.sign_in_attempts import SignInAttempt
from tbservice.db.database import Database
from tbservice.errors import Conflict, Forbidden, MalformedRequest, NotFound
from tbservice.settings import OidcProvider
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Person, Role
from tbservice.types.sign_up import SignUp

if TYPE_CHECKING:
    from tbservice.auth.oidc.provider import Provider

OIDC_CALLS_ITEMS_MAX: Final = 4
"""Calls (items) to OpenID providers at a time in one worker process."""

SIGN_INS_WAITING_PER_NETWORK_ITEMS_MAX: Final = 200
"""Sign-ins (items) from one IPv4 address or IPv6 /48 that wait for a provider's redirect."""

SIGN_INS_WAITING_ITEMS_MAX: Final = 20_000
"""Sign-ins (items) that wait for a provider's redirect, in all."""

_log = logging.getLogger(__name__)

_SECRET_BYTES: Final = 32
_NAME_CHARS_MAX: Final = 200
_EMAIL_CHARS_MAX: Final = 254
_NOT_BEGUN: Final = (
    "this sign-in was not begun in this browser, was finished already, or took too long: sign in "
    "again"
)


@dataclass(frozen=True, slots=True)
class Redirect:
    """The parameters that a provider's redirect brought; "" for those that are missing."""

    state: str
    code: str
    error: str
    issuer: str


class SignIn:
    """The sign-ins at all providers of the settings."""

    def __init__(self, providers: Sequence[OidcProvider], public_url: str, sign_up: SignUp) -> None:
        self._providers = _make_providers(providers) if providers else {}
        self._public_url = public_url.rstrip("/")
        self._sign_up = sign_up

    def list_providers(self) -> list[tuple[str, str]]:
        """Return the id and the name of every provider, in the order of the settings."""
        return [(id_, provider.settings.name) for id_, provider in self._providers.items()]

    def list_origins(self) -> list[str]:
        """Return the origins that a sign-in may lead to, as sources of a Content-Security-Policy.

        Any over https: which address a provider's sign-in page has is known only after a call to
        the provider, and one that is down must not stop other ways to sign in.
        """
        issuers = [provider.settings.issuer for provider in self._providers.values()]
        local = {f"http://{urlsplit(issuer).netloc}" for issuer in issuers if issuer[:5] == "http:"}
        return [*(["https:"] if issuers else []), *sorted(local)]

    def begin(self, database: Database, provider_id: str, browser: str, next_path: str) -> str:
        """Record a sign-in and return the address at the provider to send the browser to.

        Args:
            database: The database.
            provider_id: The provider.
            browser: The secret of a cookie of this browser.
            next_path: A path of this service to go to afterwards.

        Raises:
            NotFound: There is no such provider.
            Conflict: Too many sign-ins wait, with the code `too_many_sign_ins`.
            ProviderError: It is unreachable or answers nonsense.
        """
        provider = self._find(provider_id)
        authorization = self._authorization(provider, *(_secret() for _ in range(3)))
        url = provider.authorization_url(authorization)

        attempt = SignInAttempt(
            provider_id, authorization.nonce, authorization.code_verifier, next_path
        )
        lifetime = timedelta(seconds=limits.SIGN_IN_SECONDS_MAX)
        with database.transaction() as db:
            sign_in_attempts.delete_expired(db, limits.SIGN_IN_SWEEP_ITEMS_MAX)
            network = get_acting().network
            _check_room(*sign_in_attempts.count_waiting(db, network))
            digests = _digest(authorization.state), _digest(browser)
            sign_in_attempts.create(db, *digests, attempt, network, lifetime)
        return url

    def finish(
        self, database: Database, provider_id: str, browser: str, redirect: Redirect
    ) -> tuple[Person, str]:
        """Return the person who signed in, and the path to go to.

        Raises:
            NotFound: There is no such provider.
            MalformedRequest: The redirect has neither a code nor an error.
            Forbidden: The person declined, or the redirect or the provider's answer is not valid.
            ProviderError: The provider is unreachable or answers nonsense.
        """
        provider = self._find(provider_id)
        # First: while the provider is down, the person can reload the page, and nothing is used up.
        issuer = provider.expected_issuer()
        # A transaction of its own: whatever follows, this `state` is used up.
        with database.transaction() as db:
            attempt = sign_in_attempts.take(db, _digest(redirect.state), _digest(browser))
        if attempt is None or attempt.provider != provider_id:
            raise Forbidden(_NOT_BEGUN)

        _check_redirect(provider, issuer, redirect)
        authorization = self._authorization(
            provider, redirect.state, attempt.nonce, attempt.code_verifier
        )
        claims = provider.fetch_claims(authorization, redirect.code)
        with database.transaction() as db:
            person = self._find_person(db, provider.settings, claims, attempt.next_path)
        for workspace_id, role in plan_memberships(provider.settings.members, claims).items():
            with database.transaction(workspace_id) as db:
                _admit(db, workspace_id, person, role)
        return person, attempt.next_path

    def _find(self, provider_id: str) -> Provider:
        provider = self._providers.get(provider_id)
        if provider is None:
            raise NotFound("this server knows no such sign-in provider")
        return provider

    def _find_person(
        self, db: Connection, settings: OidcProvider, claims: Mapping[str, Any], next_path: str
    ) -> Person:
        def admits(key: str | None) -> bool:
            return self._sign_up.admits_account(key) or (
                self._sign_up.admits_invited(key) and _is_invited(db, next_path, key)
            )

        return people.sign_in_identity(
            db,
            issuer=settings.issuer,
            subject=claims["sub"],
            email=_email(claims.get("email")),
            email_verified=claims.get("email_verified") is True,
            name=_text(claims.get("name")) or _text(claims.get("preferred_username")),
            admits=admits,
        )

    def _authorization(
        self, provider: Provider, state: str, nonce: str, code_verifier: str
    ) -> Authorization:
        path = f"/sign-in/oidc/{provider.settings.id}/callback"
        return Authorization(state, nonce, code_verifier, self._public_url + path)


def _check_redirect(provider: Provider, issuer: str | None, redirect: Redirect) -> None:
    """Raise Forbidden or MalformedRequest unless the redirect brings a code of this provider."""
    name = provider.settings.name
    # Another provider of ours may have been made to send its code here (RFC 9207, "mix-up").
    if issuer is not None and not hmac.compare_digest(
        issuer.encode(), redirect.issuer.encode("utf-8", "surrogatepass")
    ):
        raise Forbidden(_NOT_BEGUN)
    if redirect.error == "access_denied":
        raise Forbidden(f"the sign-in was cancelled at {name}")
    if redirect.error:
        raise Forbidden(f"{name} could not sign you in: {redirect.error[:_NAME_CHARS_MAX]}")
    if not redirect.code:
        raise MalformedRequest(f"the redirect of {name} brings neither a code nor an error")


def _is_invited(db: Connection, next_path: str, key: str | None) -> bool:
    """Return whether a sign-in leads to an open invitation that an address may accept."""
    path = urlsplit(next_path)
    tokens = parse_qs(path.query).get("token", [])
    if path.path != INVITATION_PATH or len(tokens) != 1:
        return False
    try:
        invitation = invitations.find_invitation(db, tokens[0])
    except NotFound:
        return False
    return not invitation.email or email_key(invitation.email) == key


def _admit(db: Connection, workspace_id: WorkspaceId, person: Person, role: Role) -> None:
    """Make a person a member with at least this role, unless the workspace is missing or full."""
    try:
        people.add_member(db, workspace_id, person.user_id, role)
    except (NotFound, Conflict) as error:
        _log.warning("a rule of a sign-in provider: workspace %d: %s", workspace_id, error)


def _email(value: object) -> str:
    """Return an e-mail address; "" for one that is longer than any can be (RFC 5321, 4.5.3.1)."""
    is_short = isinstance(value, str) and len(value) <= _EMAIL_CHARS_MAX and "\0" not in value
    return str(value) if is_short else ""


def _text(value: object) -> str:
    """Return a claim as text without NUL, which PostgreSQL cannot store; "" if it is no text."""
    return value.replace("\0", "")[:_NAME_CHARS_MAX] if isinstance(value, str) else ""


def _secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check_room(of_network: int, total: int) -> None:
    """Raise Conflict if so many sign-ins wait that there may be no other one."""
    whose = ""
    if of_network >= SIGN_INS_WAITING_PER_NETWORK_ITEMS_MAX:
        whose = f"{of_network} sign-ins from your network"
    elif total >= SIGN_INS_WAITING_ITEMS_MAX:
        whose = f"{total} sign-ins on this server"
    if whose:
        raise Conflict(
            f"{whose} wait for a provider, the most there can be: finish one, or try again within "
            f"{limits.SIGN_IN_SECONDS_MAX // 60} minutes, when they end",
            code="too_many_sign_ins",
        )


def _make_providers(providers: Sequence[OidcProvider]) -> dict[str, Provider]:
    # Its libraries are a tenth of the start of a service, which most run without a provider.
    from tbservice.auth.oidc.provider import Provider  # noqa: PLC0415

    calls = threading.Semaphore(OIDC_CALLS_ITEMS_MAX)
    return {item.id: Provider(item, calls) for item in providers}
