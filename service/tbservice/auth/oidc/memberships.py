"""Rules of a provider: the workspaces that a person joins by signing in. Without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tbservice.settings import MembershipRule
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Role


def plan_memberships(
    rules: Sequence[MembershipRule], claims: Mapping[str, Any]
) -> dict[WorkspaceId, Role]:
    """Return the role that the rules give in each workspace: the highest of those that apply."""
    roles: dict[WorkspaceId, Role] = {}
    for rule in rules:
        workspace_id = WorkspaceId(rule.workspace)
        if _applies(rule, claims):
            known = roles.get(workspace_id, rule.role)
            roles[workspace_id] = known if known.includes(rule.role) else rule.role
    return roles


def _applies(rule: MembershipRule, claims: Mapping[str, Any]) -> bool:
    if rule.email_domain is not None:
        # An address that nobody has confirmed may be anyone's.
        email = claims.get("email")
        name, _, domain = email.rpartition("@") if isinstance(email, str) else ("", "", "")
        is_there = bool(name) and domain.casefold() == rule.email_domain.casefold()
        return is_there and claims.get("email_verified") is True

    assert rule.claim is not None  # noqa: S101 - the settings require one condition
    content = claims.get(rule.claim)
    return rule.value == content or (isinstance(content, list) and rule.value in content)
