"""Rules of who gets an account without an administrator."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

_DOMAIN: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


class SignUpMode(enum.StrEnum):
    """Modes: everybody, those with an address of some domains, the invited, or nobody."""

    OPEN = "open"
    DOMAINS = "domains"
    INVITATION = "invitation"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SignUp:
    """The setting `sign_up`; `domains` are those of e-mail addresses, in the mode `DOMAINS`."""

    mode: SignUpMode = SignUpMode.OPEN
    domains: frozenset[str] = frozenset()

    @staticmethod
    def parse(text: str) -> SignUp:
        """Return what the setting says. Raises ValueError."""
        if text in set(SignUpMode) - {SignUpMode.DOMAINS}:
            return SignUp(SignUpMode(text))
        domains = frozenset(part.strip().lower() for part in text.split(","))
        if not all(_DOMAIN.fullmatch(domain) for domain in domains):
            raise ValueError(
                "use 'open', 'invitation', 'closed', or domains of e-mail addresses with commas "
                "between them"
            )
        return SignUp(SignUpMode.DOMAINS, domains)

    def admits_invited(self, email_key: str | None) -> bool:
        """Return whether an invitation to this address, or None for anyone, makes an account."""
        return self._admits(email_key, {SignUpMode.OPEN, SignUpMode.INVITATION})

    def admits_account(self, email_key: str | None) -> bool:
        """Return whether an account at a provider with this confirmed address is enough."""
        return self._admits(email_key, {SignUpMode.OPEN})

    def _admits(self, email_key: str | None, modes: set[SignUpMode]) -> bool:
        if self.mode is SignUpMode.DOMAINS:
            return email_key is not None and email_key.rpartition("@")[2] in self.domains
        return self.mode in modes
