"""Rules of a provider: the workspaces that a person joins by signing in. Without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tbservice.settings import MembershipRule
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Role

_RANK = {Role.VIEWER: 0, Role.EDITOR: 1, Role.OWNER: 2}


def plan_memberships(
    rules: Sequence[MembershipRule], claims: Mapping[str, Any]
) -> dict[WorkspaceId, Role]:
    """Return the role that the rules give in each workspace: the highest of those that apply."""
    roles: dict[WorkspaceId, Role] = {}
    for rule in rules:
        workspace_id = WorkspaceId(rule.workspace)
        if _applies(rule, claims):
            roles[workspace_id] = higher_role(rule.role, roles.get(workspace_id))
    return roles


def higher_role(role: Role, other: Role | None) -> Role:
    """Return the one of two roles that may do more; `role` if the other is None."""
    return role if other is None else max(role, other, key=lambda role: _RANK[role])


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
