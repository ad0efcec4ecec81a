"""Keep who acts in this request or command, by what, and from where."""

from __future__ import annotations

import enum
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


class Means(enum.StrEnum):
    """The kinds of what somebody acts by; none for readers of what everybody may read."""

    NONE = ""
    SESSION = "session"
    TOKEN = "token"  # noqa: S105 - no secret
    LINK = "link"
    INVITATION = "invitation"
    COMMAND = "command"


@dataclass(slots=True)
class Acting:
    """The one who acts: filled in while a request is authorized.

    One object for all threads of a request: each has a copy of the context, but not of this.

    `network` is the IPv4 address or IPv6 network of the client, `means_id` the id of the session,
    token, link or invitation, or an administrator's command. Empty texts: none.
    """

    network: str = ""
    request_id: str = ""
    user_id: str = ""
    means: Means = Means.NONE
    means_id: str = ""


_ACTING: Final[ContextVar[Acting | None]] = ContextVar("acting", default=None)


def begin_request(network: str, request_id: str) -> None:
    """Note where this task's or thread's request comes from; nobody is known to act yet."""
    _ACTING.set(Acting(network, request_id))


def begin_command(name: str) -> None:
    """Note that an administrator acts by a command, until the process ends or a request begins."""
    _ACTING.set(Acting(means=Means.COMMAND, means_id=name))


def identify(means: Means, means_id: str, user_id: str | None) -> None:
    """Note who acts: called with what a secret was found to be."""
    acting = get_acting()
    acting.means, acting.means_id, acting.user_id = means, means_id, user_id or ""


def get_acting() -> Acting:
    """Return who acts; nobody in what the service does by itself."""
    acting = _ACTING.get()
    if acting is None:
        acting = Acting()
        _ACTING.set(acting)
    return acting
