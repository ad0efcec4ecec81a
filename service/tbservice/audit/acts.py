"""The acts that are recorded, and the limits of what is recorded of them."""

from __future__ import annotations

import enum
from typing import Final

AUDIT_DAY_ITEMS_MAX: Final = 100_000
"""Acts (items) recorded of a workspace in a day (UTC).

Those beyond are refused, unless they take something away: these are bounded by what there is.
"""

AUDIT_PERSON_DAY_ITEMS_MAX: Final = 1_000
"""Acts (items) of one kind recorded of a person in a day (UTC) that are of no workspace.

Those beyond are refused, with the same exception.
"""

AUDIT_DETAIL_CHARS_MAX: Final = 200
"""Characters of a text in the details of an act; longer ones are cut."""

AUDIT_NETWORKS_ITEMS_MAX: Final = 100
"""Networks (items) of a token or link whose first use is recorded; later ones are not."""

AUDIT_EXPORTS_ITEMS_MAX: Final = 1_000
"""Exports (items) of an experiment recorded in a day; later ones are not."""

SIGN_IN_FAILURES_PER_NETWORK_ITEMS_MAX: Final = 20
"""Failed sign-ins (items) recorded of one network in an hour; the others are only counted."""

SIGN_IN_FAILURES_ITEMS_MAX: Final = 1_000
"""Failed sign-ins (items) recorded in an hour, of all networks; the others are only counted."""


class Act(enum.StrEnum):
    """The acts, each as the kind of its object and a verb."""

    SIGN_IN = "sign_in"
    SIGN_IN_FAIL = "sign_in.fail"
    SIGN_OUT = "sign_out"
    SESSION_END = "session.end"
    SIGN_IN_LINK_CREATE = "sign_in_link.create"
    DEVICE_LOGIN_APPROVE = "device_login.approve"
    DEVICE_LOGIN_DENY = "device_login.deny"
    PERSON_CREATE = "person.create"
    PERSON_RENAME = "person.rename"
    PERSON_CONFIRM = "person.confirm"
    PERSON_DISABLE = "person.disable"
    PERSON_ENABLE = "person.enable"
    PERSON_SUSPEND = "person.suspend"
    PERSON_RELEASE = "person.release"
    PERSON_DELETE = "person.delete"
    PERSON_RESTORE = "person.restore"
    PERSON_ERASE = "person.erase"
    OPERATOR_ADD = "operator.add"
    OPERATOR_REMOVE = "operator.remove"
    TOKEN_CREATE = "token.create"  # noqa: S105 - no secret
    TOKEN_NETWORK = "token.network"  # noqa: S105 - no secret
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 - no secret
    LINK_CREATE = "link.create"
    LINK_FREEZE = "link.freeze"
    LINK_NETWORK = "link.network"
    LINK_RENAME = "link.rename"
    LINK_REVOKE = "link.revoke"
    LINK_SUSPEND = "link.suspend"
    LINK_RELEASE = "link.release"
    WORKSPACE_CREATE = "workspace.create"
    WORKSPACE_RENAME = "workspace.rename"
    WORKSPACE_EXPIRY = "workspace.expiry"
    WORKSPACE_SUSPEND = "workspace.suspend"
    WORKSPACE_RELEASE = "workspace.release"
    WORKSPACE_ACCOUNT = "workspace.account"
    WORKSPACE_DELETE = "workspace.delete"
    WORKSPACE_RESTORE = "workspace.restore"
    WORKSPACE_ERASE = "workspace.erase"
    MEMBER_ADD = "member.add"
    MEMBER_ROLE = "member.role"
    MEMBER_REMOVE = "member.remove"
    MEMBER_LEAVE = "member.leave"
    INVITATION_CREATE = "invitation.create"
    INVITATION_ACCEPT = "invitation.accept"
    INVITATION_REVOKE = "invitation.revoke"
    EXPERIMENT_SHARE = "experiment.share"
    EXPERIMENT_SUSPEND = "experiment.suspend"
    EXPERIMENT_RELEASE = "experiment.release"
    EXPERIMENT_DELETE = "experiment.delete"
    EXPERIMENT_EXPIRE = "experiment.expire"
    EXPERIMENT_RESTORE = "experiment.restore"
    EXPERIMENT_ERASE = "experiment.erase"
    EXPERIMENT_EXPORT = "experiment.export"
    RUN_DELETE = "run.delete"
    RUN_ERASE = "run.erase"
    RUN_ALLOW = "run.allow"
    SERIES_DELETE = "series.delete"
    SERIES_ERASE = "series.erase"
    OBJECTS_SWEEP = "objects.sweep"
    QUOTA_SET = "quota.set"
    REPORT_CLOSE = "report.close"
    DATABASE_BACKUP = "database.backup"
    DATABASE_RESTORE = "database.restore"
    DATABASE_MIGRATE = "database.migrate"
    AUDIT_EXPIRE = "audit.expire"


ALWAYS_RECORDED: Final = frozenset(
    {
        Act.SIGN_OUT,
        Act.SESSION_END,
        Act.DEVICE_LOGIN_DENY,
        Act.PERSON_DISABLE,
        Act.OPERATOR_REMOVE,
        Act.TOKEN_REVOKE,
        Act.LINK_REVOKE,
        Act.MEMBER_REMOVE,
        Act.MEMBER_LEAVE,
        Act.INVITATION_REVOKE,
        Act.PERSON_SUSPEND,
        Act.LINK_SUSPEND,
        Act.WORKSPACE_SUSPEND,
        Act.PERSON_DELETE,
        Act.PERSON_ERASE,
        Act.WORKSPACE_DELETE,
        Act.WORKSPACE_ERASE,
        Act.EXPERIMENT_SUSPEND,
        Act.AUDIT_EXPIRE,
        Act.DATABASE_BACKUP,
        Act.DATABASE_RESTORE,
        Act.EXPERIMENT_EXPIRE,
        Act.EXPERIMENT_ERASE,
        Act.RUN_ERASE,
        Act.SERIES_ERASE,
        Act.OBJECTS_SWEEP,
    }
)
"""Acts that end a right, or that the service does by itself.

Who has filled a day's records must not keep owners and the service from these.
"""
