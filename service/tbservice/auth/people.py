"""Find, create, sign in and disable people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import count_of_network, record
from tbservice.auth import secrets
from tbservice.auth.emails import email_key, require_email_key
from tbservice.auth.tables import (
    browser_sessions,
    invitations,
    members,
    sign_in_links,
    suspensions,
    tokens,
    user_identities,
    users,
)
from tbservice.auth.tables.users import User
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.quotas import room
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Membership, Person, Role
from tbservice.types.suspensions import Suspendable, subject_of

MEMBERS_ITEMS_MAX: Final = 2_000
"""Members (items) of a workspace."""

_IDENTITY_CHARS_MAX: Final = 2_000
"""Characters of an issuer or a subject: OpenID Connect Core 1.0, section 2, permits 255."""

ACCOUNTS_PER_NETWORK_ITEMS_MAX: Final = 100
"""Accounts (items) made from one IPv4 address or IPv6 /48 in `ACCOUNTS_SECONDS`.

Those that an administrator makes are not counted.
"""

ACCOUNTS_SECONDS: Final = 24 * 3600
"""Seconds in which the new accounts of a network are counted."""

_DISABLED: Final = "this person is disabled: ask the administrator of this service"
SIGN_UP_CLOSED: Final = "sign_up_closed"
"""Code of the refusal of somebody new."""

NOT_ADMITTED: Final = (
    "this service makes no account for you: ask its administrator, or use an address that it admits"
)


def find_or_create_by_email(db: Connection, email: str, name: str = "") -> Person:
    """Return the person with this address; create one if there is none.

    For administrators, who thereby confirm that the address is that person's. Raises Invalid for
    what is no address.
    """
    key = require_email_key(email)
    existing = users.find_by_email_key(db, key)
    if existing is not None:
        return existing.person
    created = users.create(db, UserId(secrets.generate_public_id()), _clean_name(name), email, key)
    if created is None:  # another transaction was faster
        created = users.find_by_email_key(db, key)
        assert created is not None  # noqa: S101 - users are never deleted
    else:
        record(db, Act.PERSON_CREATE, None, created.person.user_id, by="address")
    return created.person


def create_by_invitation(
    db: Connection, email: str, name: str, invited_by: Person | None
) -> Person:
    """Create the person who opened the link of an invitation to this address, or to "" for anyone.

    The address is not confirmed: who invited chose it, and had the link too. Otherwise they could
    make the account to which an administrator or a provider later admits the real person.

    Raises:
        Invalid: The name is empty or too long.
        Conflict: A person has confirmed this address: they must sign in by themselves. Or too many
            accounts were made from this network, with the code `too_many_accounts`.
        Forbidden: A person who shows this address is disabled or suspended.
    """
    if not (cleaned := _clean_name(name)):
        raise Invalid("write your name: the members of the workspace see it")
    _check_name_length(name)
    key = email_key(email)
    if key is not None:
        check_joins(db, key)
    _check_new_account(db)
    created = users.create(db, UserId(secrets.generate_public_id()), cleaned, email, None)
    assert created is not None  # noqa: S101 - no key that can be another's
    if invited_by is not None:
        # Otherwise one person who invites themselves would have as many shares as they like. At the
        # end of a long chain, all who are invited have the same sponsor, so that it stays bounded.
        sponsors = users.list_sponsors(db, invited_by.user_id)[: users.SPONSORS_ITEMS_MAX]
        users.set_sponsor(db, created.person.user_id, sponsors[-1])
    record(db, Act.PERSON_CREATE, None, created.person.user_id, by="invitation")
    return created.person


def check_joins(db: Connection, key: str) -> None:
    """Check that an invitation to this address may create a person.

    Raises Conflict and Forbidden as `create_by_invitation` does.
    """
    shown = users.list_by_address(db, key)
    _check_suspended(db, *(user.person.user_id for user in shown))
    if any(user.is_disabled for user in shown):
        raise Forbidden(_DISABLED)
    if any(user.email_key is not None for user in shown):
        raise Conflict(
            "a person with this e-mail address has an account here: sign in with it, then open "
            "this invitation again"
        )


def find_person(db: Connection, user_id: UserId) -> Person:
    """Return a person. Raises NotFound."""
    return _require_user(db, user_id).person


def find_named(db: Connection, named: str) -> Person:
    """Return the person with this id, confirmed address, or address of nobody else.

    For administrators. Raises NotFound; Invalid for what is neither an id nor an address; Conflict
    if several people show the address, and none has confirmed it.
    """
    user = users.find(db, UserId(named)) if "@" not in named else None
    if user is not None:
        return user.person
    shown = users.list_by_address(db, require_email_key(named))
    confirmed = [user for user in shown if user.email_key is not None]
    if not shown:
        raise NotFound("there is no person with this e-mail address")
    if not confirmed and len(shown) > 1:
        raise Conflict(f"several people show this e-mail address, name one by id: {_list(shown)}")
    return (confirmed or shown)[0].person


def admit(db: Connection, named: str, name: str = "", *, is_new: bool = False) -> Person:
    """Return the person with this id or confirmed address; create one for an address of nobody.

    For administrators, who thereby confirm that the address is that person's. A person who is named
    by id and whose address nobody had confirmed is signed out everywhere: another person who joined
    with the address loses the account. Tokens stay, each of which opens one workspace alone.

    Args:
        db: A transaction.
        named: An id or an address.
        name: Name of a new person that others see.
        is_new: Create a person also if the address is shown by people who did not confirm it.

    Raises:
        Conflict: People show the address who did not confirm it; or to confirm the address of the
            person who is named by id, which is another's.
        Invalid: Neither an id nor an address.
    """
    user = users.find(db, UserId(named)) if "@" not in named else None
    if user is not None:
        _confirm_address(db, user)
        return user.person
    key = require_email_key(named)
    shown = users.list_by_address(db, key)
    if shown and not is_new and all(user.email_key is None for user in shown):
        raise Conflict(
            f"nobody has confirmed that this e-mail address is theirs, and it is shown by "
            f"{_list(shown)}: name the person by that id if the account is theirs, which confirms "
            "the address and signs them out everywhere; --new makes another person"
        )
    return find_or_create_by_email(db, named, name)


def _confirm_address(db: Connection, user: User) -> None:
    key = email_key(user.person.email)
    if user.email_key is not None or key is None:
        return
    if users.find_by_email_key(db, key) is not None:
        raise Conflict("the e-mail address of this person is confirmed as another person's")
    users.confirm_address(db, user.person.user_id, key)
    record(db, Act.PERSON_CONFIRM, None, user.person.user_id)
    _sign_out(db, user.person.user_id)


def _list(shown: list[User]) -> str:
    return ", ".join(f"{user.person.user_id} ({user.person.name})" for user in shown)


def find_people(db: Connection, user_ids: Iterable[str]) -> dict[UserId, Person]:
    """Return the people with these ids, by id; none for an id that is unknown."""
    return {user.person.user_id: user.person for user in users.list_by_ids(db, user_ids)}


def list_people(db: Connection) -> list[User]:
    """Return everyone, the oldest first. For administrators of the service."""
    return users.list_all(db)


def list_memberships(db: Connection, user_id: UserId) -> list[Membership]:
    """Return the workspaces that a person is a member of, by name."""
    return members.list_of_user(db, user_id)


def record_workspace(db: Connection, user_id: UserId, workspace_id: WorkspaceId) -> None:
    """Record that a person used this workspace last. It gives no right."""
    users.set_last_workspace(db, user_id, workspace_id)


def add_member(db: Connection, workspace_id: WorkspaceId, user_id: UserId, role: Role) -> Role:
    """Make a person a member of a workspace, and return the role that they have then.

    For what an administrator of the service decides. A member keeps a higher role. Raises NotFound
    if there is no such workspace, and Conflict if it is full.
    """
    set_local(db, "workspace_id", str(workspace_id))
    if not members.lock_open_workspace(db, workspace_id):
        raise NotFound("there is no such workspace")
    current = members.find_role(db, workspace_id, user_id)
    if current is not None and current.includes(role):
        return current
    check_room(db, workspace_id, current)
    members.put(db, workspace_id, user_id, role)
    record(db, Act.MEMBER_ADD, workspace_id, user_id, role=role, before=current)
    return role


def check_room(db: Connection, workspace_id: WorkspaceId, current: Role | None) -> None:
    """Check that a workspace, which is locked, has room for another member.

    `current` is the person's role until now, None for a new member. Raises Conflict, and
    QuotaExceeded.
    """
    if current is not None:
        return
    count = members.count(db, workspace_id)
    if count >= MEMBERS_ITEMS_MAX:
        raise Conflict(f"a workspace has at most {MEMBERS_ITEMS_MAX} members")
    room.check_members(db, workspace_id)


def sign_in_identity(
    db: Connection,
    issuer: str,
    subject: str,
    email: str,
    email_verified: bool,
    name: str,
    *,
    admits: Callable[[str | None], bool] = lambda _: True,
) -> Person:
    """Return the person of an account at an OpenID provider; create one at the first sign-in.

    An account is linked to a person that exists already only if the provider confirms their
    address, and if they have no other account of this provider: an address may be given to
    another employee.

    Args:
        db: A transaction.
        issuer: `iss` of the verified ID token.
        subject: `sub` of it.
        email: Its `email`, or "".
        email_verified: Its `email_verified`; False if it has none.
        name: Its `name`, or "".
        admits: Whether somebody new gets an account, by the confirmed address; None without one.

    Raises:
        Forbidden: The person is disabled or suspended, the account cannot be linked, or somebody
            new is not admitted.
        Conflict: Too many accounts were made from this network.
        Invalid: Issuer or subject are empty, too long, or contain NUL.
    """
    for text in (issuer, subject):
        if not text or len(text) > _IDENTITY_CHARS_MAX or "\0" in text:
            raise Invalid("the provider sent no usable account")
    user_identities.lock(db, issuer, subject)
    user_id = user_identities.find(db, issuer, subject)
    if user_id is None:
        key = email_key(email)
        user = _find_to_link(db, issuer, key, email_verified)
        if user is None:
            confirmed = key if email_verified else None
            if not admits(confirmed):
                raise Forbidden(NOT_ADMITTED, code=SIGN_UP_CLOSED)
            _check_new_account(db)
            user = _create_by_provider(db, issuer, email, confirmed, name)
        user_id = user.person.user_id
        user_identities.create(db, issuer, subject, user_id)
    return require_enabled(db, user_id)


def _create_by_provider(
    db: Connection, issuer: str, email: str, confirmed: str | None, name: str
) -> User:
    """Return a new person; `confirmed` is the key of the address, None for one that is not."""
    user_id = UserId(secrets.generate_public_id())
    shown = email if email_key(email) is not None else ""
    created = users.create(db, user_id, _clean_name(name), shown, confirmed)
    if created is None:  # another transaction was faster: with the same address, which is confirmed
        existing = _find_to_link(db, issuer, confirmed, email_verified=True)
        assert existing is not None  # noqa: S101 - users are never deleted
        return existing
    record(db, Act.PERSON_CREATE, None, user_id, by="provider", issuer=issuer)
    return created


def _check_new_account(db: Connection) -> None:
    """Raise Conflict if too many accounts were made from the network of who acts."""
    items_max = ACCOUNTS_PER_NETWORK_ITEMS_MAX
    if count_of_network(db, Act.PERSON_CREATE, ACCOUNTS_SECONDS, items_max) >= items_max:
        raise Conflict(
            f"{items_max} accounts were made from your network in a day, the most there can be: "
            "try again tomorrow, or ask the administrator of this service for a sign-in link",
            code="too_many_accounts",
        )


def _find_to_link(
    db: Connection, issuer: str, key: str | None, email_verified: bool
) -> User | None:
    """Return the person to link an account to, which nobody has signed in with before, if any."""
    existing = users.find_by_email_key(db, key) if key is not None else None
    if existing is None:
        return None
    if not email_verified:
        raise Forbidden(
            "this e-mail address belongs to a person who is known here, and your provider has not "
            "confirmed that it is yours: confirm it there, then sign in again"
        )
    if user_identities.has_account_of(db, existing.person.user_id, issuer):
        raise Forbidden(
            "this e-mail address belongs to a person who signs in with another account of this "
            "provider: ask the administrator of this service"
        )
    return existing


def require_enabled(db: Connection, user_id: UserId) -> Person:
    """Return a person, who stays enabled until the transaction ends.

    Raises Forbidden if they are disabled or suspended, NotFound if there is no such person.
    """
    user = users.lock(db, user_id)
    if user is None:
        raise NotFound("there is no such person")
    if user.is_disabled:
        raise Forbidden(_DISABLED)
    _check_suspended(db, user_id)
    return user.person


def _check_suspended(db: Connection, *user_ids: UserId) -> None:
    """Raise Forbidden if one of these people is suspended."""
    subjects = [subject_of(Suspendable.PERSON, user_id) for user_id in user_ids]
    if suspension := suspensions.find_broadest(db, subjects):
        raise suspension.as_error()


def disable(db: Connection, user_id: UserId) -> None:
    """Disable a person and end all that acts for them: sessions, links and tokens. Idempotent.

    Their open invitations are revoked: with the link of one they would join as somebody new.
    Raises NotFound if there is no such person.
    """
    _require_user(db, user_id)
    users.set_disabled(db, user_id, is_disabled=True)
    record(db, Act.PERSON_DISABLE, None, user_id)
    end_access(db, user_id)


def end_access(db: Connection, user_id: UserId) -> None:
    """End all that acts for a person, and revoke their open invitations."""
    _sign_out(db, user_id)
    tokens.revoke_of_user(db, user_id)
    # Invitations to other workspaces were revoked when they left these or lost the role.
    for membership in members.list_of_user(db, user_id, with_deleted=True):
        set_local(db, "workspace_id", str(membership.workspace_id))
        invitations.revoke_created_by(db, membership.workspace_id, user_id)


def enable(db: Connection, user_id: UserId) -> None:
    """Enable a person again, who must sign in again and create new tokens. Idempotent.

    Raises NotFound if there is no such person.
    """
    _require_user(db, user_id)
    users.set_disabled(db, user_id, is_disabled=False)
    record(db, Act.PERSON_ENABLE, None, user_id)


def rename(db: Connection, user_id: UserId, name: str) -> Person:
    """Set the name that others see, without control characters.

    Raises NotFound, and Invalid for a text over its limit.
    """
    _check_name_length(name)
    users.set_name(db, user_id, _clean_name(name))
    record(db, Act.PERSON_RENAME, None, user_id)  # not the name: it could not be erased there
    return find_person(db, user_id)


def _require_user(db: Connection, user_id: UserId) -> User:
    user = users.find(db, user_id)
    if user is None:
        raise NotFound("there is no such person")
    return user


def _sign_out(db: Connection, user_id: UserId) -> None:
    """End all browser sessions and sign-in links of a person."""
    browser_sessions.delete_of_user(db, user_id, None)
    sign_in_links.delete_of_user(db, user_id)


def _check_name_length(name: str) -> None:
    if len(name) > limits.PERSON_NAME_CHARS_MAX:
        raise Invalid(f"a name has at most {limits.PERSON_NAME_CHARS_MAX} characters")


def _clean_name(name: str) -> str:
    """Return a provider's or an administrator's name without control characters, cut."""
    printable = "".join(char if char.isprintable() else " " for char in name)
    return " ".join(printable.split())[: limits.PERSON_NAME_CHARS_MAX]
